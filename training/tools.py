"""Tool calls: a few function signatures and a request, answered by a call; then the tool's reply in words."""

from collections.abc import Callable
from dataclasses import dataclass, field

from training import words
from training.sample import Sample, Turn, ask, tool_answer, tool_call


@dataclass(frozen=True)
class Tool:
    """One function: its signature, how people ask for it, how arguments are drawn, what it replies.

    `parameters` maps a name to (JSON type, how to draw a value); `replies` are pairs of the tool's result
    (a dict, values may hold placeholders) and the sentence that the assistant makes of it.
    """

    name: str
    description: str
    parameters: dict[str, tuple[str, Callable]]
    requests: tuple[str, ...]
    result: dict = field(default_factory=lambda: {"status": "ok"})
    reply: str = "Done."

    def signature(self):
        """The function's description in the schema that chat templates take."""
        properties = {name: {"type": kind} for name, (kind, _) in self.parameters.items()}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        function = {"name": self.name, "description": self.description, "parameters": schema}
        return {"type": "function", "function": function}


def one_of(values):
    """A parameter drawn from a list of strings."""
    return ("string", lambda rng: rng.choice(values))


def number(low, high):
    """An integer parameter between `low` and `high`, both included."""
    return ("integer", lambda rng: rng.randint(low, high))


def person():
    """A parameter that is a person's full name, one in four of them never seen before."""
    return ("string", lambda rng: f"{rng.choice(words.FIRST_NAMES)} {words.surname(rng)}")


def clock():
    """A parameter that is a time of day."""
    return ("string", lambda rng: f"{rng.randint(7, 22)}:{rng.choice(('00', '15', '30', '45'))}")


TOOLS = (
    Tool(
        "get_weather",
        "Weather in a city",
        {"city": one_of(words.CITIES), "day": one_of(words.DAYS)},
        (
            "What is the weather in {city} on {day}?",
            "Will it rain in {city} on {day}?",
            "{day} in {city}: sun or rain?",
        ),
        {"weather": "{weather}", "degrees": "{degrees}"},
        "It will be {weather} in {city} on {day}, {degrees} degrees.",
    ),
    Tool(
        "set_timer",
        "Start a timer",
        {"minutes": number(1, 180), "label": one_of(words.THINGS + words.EVENTS)},
        (
            "Set a timer for {minutes} minutes, call it {label}.",
            "Start a {label} timer of {minutes} minutes.",
        ),
        reply="The {label} timer runs for {minutes} minutes.",
    ),
    Tool(
        "send_message",
        "Send a message to a person",
        {
            "to": person(),
            "text": one_of([f"I am {m}" for m in words.MOODS] + [f"bring the {t}" for t in words.THINGS]),
        },
        ('Tell {to}: "{text}".', 'Write "{text}" to {to}.', 'Send {to} a message saying "{text}".'),
        reply="I sent your message to {to}.",
    ),
    Tool(
        "add_event",
        "Add an event to the calendar",
        {"title": one_of(words.EVENTS), "day": one_of(words.DAYS), "time": clock()},
        (
            "Put the {title} on {day} at {time} in my calendar.",
            "Add a calendar event: {title}, {day}, {time}.",
        ),
        reply="The {title} is in your calendar for {day} at {time}.",
    ),
    Tool(
        "convert",
        "Convert money",
        {
            "amount": number(1, 999),
            "source": one_of(words.CURRENCIES[:4]),
            "target": one_of(words.CURRENCIES[4:]),
        },
        ("How much is {amount} {source} in {target}?", "Convert {amount} {source} to {target}."),
        {"value": "{value}"},
        "{amount} {source} are {value} {target}.",
    ),
    Tool(
        "set_light",
        "Switch a light",
        {"room": one_of(words.ROOMS), "color": one_of(words.COLORS), "level": number(1, 100)},
        (
            "Make the {room} light {color} at {level} percent.",
            "Set the light in the {room} to {color}, {level} percent.",
        ),
        reply="The {room} light is {color} now.",
    ),
    Tool(
        "book_table",
        "Book a table",
        {"name": person(), "people": number(2, 12), "time": clock()},
        (
            "Book a table for {people} at {time} under {name}.",
            "{name} wants a table for {people} people at {time}.",
        ),
        reply="A table for {people} is booked at {time}.",
    ),
    Tool(
        "play_music",
        "Play music",
        {"style": one_of(words.MUSIC), "volume": number(1, 100)},
        ("Play some {style} at volume {volume}.", "I want to hear {style}, volume {volume}."),
        reply="Playing {style}.",
    ),
    Tool(
        "find_flight",
        "Find a flight",
        {
            "source": one_of(words.CITIES[:15]),
            "target": one_of(words.CITIES[15:]),
            "month": one_of(words.MONTHS),
        },
        (
            "Find a flight from {source} to {target} in {month}.",
            "I want to fly to {target} from {source} in {month}.",
        ),
        {"price": "{value}"},
        "There is a flight to {target} for {value} euros.",
    ),
    Tool(
        "translate",
        "Translate a word",
        {"word": one_of(words.ANIMALS + words.THINGS + words.PLACES), "language": one_of(words.LANGUAGES)},
        ('How do you say "{word}" in {language}?', 'Translate "{word}" to {language}.'),
        {"error": "no dictionary"},
        "I have no dictionary for {language}.",
    ),
)


def call(rng):
    """One to four tools and a request that one of them serves; in half the samples the tool replies."""
    offered = rng.sample(TOOLS, rng.randint(1, 4))
    tool = rng.choice(offered)
    arguments = {name: draw(rng) for name, (_, draw) in tool.parameters.items()}
    request = rng.choice(tool.requests).format(**arguments)
    turns = [Turn(ask(request, tools=[t.signature() for t in offered]), tool_call(tool.name, arguments))]
    if rng.random() < 0.5:
        turns.append(after(rng, tool, arguments))
    return Sample("tools", (request,), tuple(turns))


def held_out(rng):
    """As `call`, the first turn alone."""
    sample = call(rng)
    return Sample(sample.skill, sample.keys, sample.turns[:1])


def after(rng, tool, arguments):
    """The turn in which the tool replied and the assistant says so."""
    drawn = {
        "weather": rng.choice(words.WEATHER),
        "degrees": rng.randint(-9, 35),
        "value": rng.randint(10, 2000),
    }
    result = {name: fill(value, drawn) for name, value in tool.result.items()}
    return Turn(tool_answer(result), tool.reply.format(**arguments, **drawn))


def fill(template, drawn):
    """The value that a '{name}' placeholder stands for, or the text itself."""
    return drawn[template[1:-1]] if template.startswith("{") else template
