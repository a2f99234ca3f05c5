"""Short stories from a small grammar: who and where, a wish, an obstacle, help, an end."""

from training import words
from training.sample import END_OF_TEXT, Sample, Turn, ask

OPENINGS = (
    "Once upon a time there was {a} {mood} {hero} who lived near the {place}.",
    "Long ago, {a} {mood} {hero} named {name} lived by the {place}.",
    "One {weather} morning, {name} the {hero} walked to the {place}.",
    "In a small house by the {place} lived {name}, {a} {mood} {hero}.",
    "There was once a {color} {hero} called {name} who loved the {place}.",
    "Every day {name} the {hero} went to the {place} alone.",
    "It was {a} {weather} day, and {name} the {hero} felt {mood}.",
)
WISHES = (
    "{name} wanted to find a {color} {thing}.",
    "All {name} wished for was a {thing} as {color} as the sky in a dream.",
    'One day a {other} said, "Have you seen my {thing}? It is {color}."',
    "But the {color} {thing} was gone, and nobody knew where it was.",
    "{name} had lost a {thing} and looked for it everywhere.",
    "A letter came: somebody had hidden a {color} {thing} in the {far}.",
    '"I will bring the {thing} to my {friend}," said {name}.',
)
OBSTACLES = (
    "The way to the {far} was long and dark.",
    "Then it began to rain, and the path was full of water.",
    "A big {other} stood on the bridge and did not let anyone pass.",
    "The wind blew so hard that the trees bent down.",
    "At the {far} there was a door, and the door was closed.",
    "{name} fell into a hole and could not get out.",
    "Soon it was night, and {name} was afraid.",
    "The {other} laughed and ran away with the {thing}.",
)
HELP = (
    'A {mood} {other} came by and said, "Let me help you."',
    "Together with a {other}, {name} made a plan.",
    "{name} thought for a while and then had an idea.",
    'The {other} gave {name} a {tool}. "Use it well," said the {other}.',
    "{name} called for help, and the {friend} came at once.",
    "With a {tool} from the {place} it was easy.",
    '"Do not be afraid," said the {other}. "I know the way."',
)
ENDS = (
    "In the end {name} found the {thing}, and everybody was happy.",
    "That evening they shared a cake and told stories until it was late.",
    "From that day on, {name} and the {other} were friends.",
    "{name} gave the {thing} to the {friend} and went home with a smile.",
    "The {thing} was broken, but {name} had found a friend, and that was better.",
    'And {name} said, "Tomorrow we will come back to the {far}."',
    "So {name} learned to be patient, and the {place} was quiet again.",
    "They walked home under the stars.",
)
EXTRAS = (
    "The {place} was full of flowers.",
    "A {color} bird sang in a tree.",
    "{name} was not {mood} any more.",
    "It smelled of bread and honey.",
    '"How strange," thought {name}.',
    "The sun was low and the shadows were long.",
    "Nobody said a word.",
    "The {friend} of {name} waited at home.",
)
REQUESTS = (
    "Tell me a story about {a} {hero}.",
    "Write a short story about {a} {hero} and a {thing}.",
    "Tell me about {a} {hero} at the {place}.",
)


def tell(rng):
    """A story as raw text from its first words on, or as the answer to a request."""
    cast = draw(rng)
    text = " ".join(write(rng, cast))
    if rng.random() < 0.4:
        prompt = ask(rng.choice(REQUESTS).format(**(cast | {"a": words.article(cast["hero"])})))
        return Sample("stories", (text,), (Turn(prompt, text),))
    tokens = text.split(" ")
    cut = rng.randint(4, 12)
    turn = Turn(" ".join(tokens[:cut]), " " + " ".join(tokens[cut:]))
    return Sample("stories", (text,), (turn,), END_OF_TEXT)


def draw(rng):
    """The words that fill one story's placeholders."""
    hero, other = rng.sample(words.ANIMALS, 2)
    place, far = rng.sample(words.PLACES, 2)
    thing, tool = rng.sample(words.THINGS, 2)
    mood = rng.choice(words.MOODS)
    cast = {"hero": hero, "other": other, "place": place, "far": far, "thing": thing, "tool": tool}
    cast |= {"mood": mood, "color": rng.choice(words.COLORS), "weather": rng.choice(words.WEATHER)}
    cast |= {"friend": rng.choice(words.FRIENDS), "name": rng.choice(words.FIRST_NAMES)}
    return cast | {"a": words.article(mood)}


def write(rng, cast):
    """The sentences of one story, in order."""
    parts = [OPENINGS, WISHES, OBSTACLES, HELP, ENDS]
    if rng.random() < 0.5:
        parts[3:3] = [OBSTACLES, HELP]
    lines = []
    for part in parts:
        lines.append(pick(rng, part, lines))
        if rng.random() < 0.3:
            lines.append(pick(rng, EXTRAS, lines))
    return [line.format(**cast) for line in lines]


def pick(rng, part, used):
    """A sentence of `part` that this story does not hold yet."""
    return rng.choice([line for line in part if line not in used])
