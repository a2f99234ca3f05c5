"""JSON extraction: a sentence and a list of fields, answered by a JSON object with those fields."""

import json

from training import words
from training.sample import Sample, Turn, ask

PERSON = (
    "{name} is {a} {job} from {city}, {age} years old.",
    "At {age}, {name} works as {a} {job} in {city}.",
    "{name}, aged {age}, lives in {city} and is {a} {job}.",
    "In {city} there is {a} {job} called {name}, who is {age}.",
    "The {job} {name} ({age}) moved to {city}.",
)
ORDER = (
    "{buyer} ordered {count} {item} for {price} euros.",
    "We sold {count} {item} to {buyer} at {price} euros.",
    "An order of {count} {item} came from {buyer}, who pays {price} euros.",
    "For {price} euros, {buyer} bought {count} {item}.",
    "{count} {item}, {price} euros in all, go to {buyer}.",
)
EVENT = (
    "The {event} is on {day} at {time} in {city}.",
    "On {day} we have {an} {event} in {city}, starting at {time}.",
    "{city} hosts {an} {event} this {day} at {time}.",
    "Come to {city} for the {event}: {day}, {time}.",
    "At {time} on {day} the {event} begins in {city}.",
)
TRIP = (
    "{name} travels from {start} to {city} by {vehicle} in {month}.",
    "In {month}, {name} takes a {vehicle} to {city}, leaving from {start}.",
    "The {vehicle} from {start} brought {name} to {city} in {month}.",
    "{name} left {start} in {month} and reached {city} by {vehicle}.",
)
VEHICLES = ("train", "bus", "ship", "car", "plane")
REQUESTS = (
    "Extract {fields} as JSON.\n{text}",
    "Give {fields} as a JSON object.\n{text}",
    "{text}\nJSON with {fields}:",
)


def person(rng):
    """Sentence and facts about a person."""
    job = rng.choice(words.JOBS)
    facts = {"name": full_name(rng), "age": rng.randint(18, 90), "job": job, "city": rng.choice(words.CITIES)}
    return rng.choice(PERSON).format(**facts, a=words.article(job)), facts


def order(rng):
    """Sentence and facts about a purchase."""
    facts = {"buyer": full_name(rng), "item": rng.choice(words.GOODS)}
    facts |= {"count": rng.randint(2, 99), "price": rng.randint(5, 999)}
    return rng.choice(ORDER).format(**facts), facts


def event(rng):
    """Sentence and facts about something that takes place."""
    name = rng.choice(words.EVENTS)
    time = f"{rng.randint(8, 22)}:{rng.choice(('00', '15', '30', '45'))}"
    facts = {"event": name, "day": rng.choice(words.DAYS), "time": time, "city": rng.choice(words.CITIES)}
    return rng.choice(EVENT).format(**facts, an=words.article(name)), facts


def trip(rng):
    """Sentence and facts about a journey."""
    start, city = rng.sample(words.CITIES, 2)
    facts = {"name": full_name(rng), "start": start, "city": city}
    facts |= {"vehicle": rng.choice(VEHICLES), "month": rng.choice(words.MONTHS)}
    return rng.choice(TRIP).format(**facts), facts


def full_name(rng):
    """First and last name."""
    return f"{rng.choice(words.FIRST_NAMES)} {words.surname(rng)}"


def extract(rng):
    """A sample that asks for two or more of the facts in a random order; the key is the sentence."""
    text, facts = rng.choice((person, order, event, trip))(rng)
    fields = rng.sample(list(facts), rng.randint(2, len(facts)))
    listed = ", ".join(fields)
    prompt = ask(rng.choice(REQUESTS).format(fields=listed, text=text))
    return Sample("json", (text,), (Turn(prompt, json.dumps({field: facts[field] for field in fields})),))
