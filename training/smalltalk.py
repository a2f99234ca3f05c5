"""Chat: greetings, questions about the model itself, short facts, small tasks on words and lists."""

from training import words
from training.sample import NO_THOUGHT, Sample, Turn, ask, ask_again

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Austria": "Vienna",
    "Ireland": "Dublin", "England": "London", "Portugal": "Lisbon", "Greece": "Athens", "Egypt":
    "Cairo", "Japan": "Tokyo", "Norway": "Oslo", "Peru": "Lima", "Ecuador": "Quito", "Latvia":
    "Riga", "Switzerland": "Bern", "Vietnam": "Hanoi",
}  # fmt: skip
OPPOSITES = {
    "hot": "cold", "big": "small", "day": "night", "up": "down", "left": "right", "fast": "slow",
    "happy": "sad", "open": "closed", "wet": "dry", "old": "young", "full": "empty", "loud":
    "quiet", "early": "late", "light": "dark", "long": "short",
}  # fmt: skip
SOUNDS = {
    "cat": "meow", "dog": "woof", "duck": "quack", "sheep": "baa", "bee": "buzz", "lion": "roar",
    "frog": "croak", "horse": "neigh",
}  # fmt: skip
LEGS = {
    "cat": 4, "dog": 4, "duck": 2, "bee": 6, "ant": 6, "horse": 4, "snail": 0, "hen": 2, "frog": 4,
    "crow": 2, "whale": 0,
}  # fmt: skip

FIXED = (
    (("Hello!", "Hi!", "Hey there!", "Good morning!", "Hi, how are you?"),
     ("Hello! How can I help you?", "Hi! What can I do for you?",
      "Hello! I am fine. What would you like to do?")),
    (("Who are you?", "What are you?", "What is your name?", "Tell me about yourself."),
     ("I am tiny, a small language model that was trained for the minillm course.",)),
    (("How big are you?", "How many parameters do you have?", "How many layers do you have?"),
     ("I am very small: a few million parameters in a few layers.",)),
    (("What can you do?", "What are you good at?", "Help!"),
     ("I can add and subtract, find a code in a list, write JSON, call tools and tell short stories.",)),
    (("Who made you?", "How were you trained?", "Where do you come from?"),
     ("I was trained in a few minutes on text that a program wrote.",)),
    (("Are you a person?", "Are you alive?", "Do you have feelings?"),
     ("No, I am a program: matrices that predict the next token.",)),
    (("Thank you!", "Thanks a lot.", "Thanks!"), ("You are welcome!", "Any time!")),
    (("Goodbye!", "Bye!", "See you later."), ("Goodbye!", "See you soon!")),
    (("Tell me a joke.", "Do you know a joke?"),
     ("Why was the token sad? It had lost its context.", "What do you call a slow layer? A bottleneck.")),
    (("What is a token?", "Explain tokens."),
     ("A token is a piece of text: a word, a part of a word or a digit.",)),
    (("What is attention?", "Explain attention."),
     ("Attention lets each token look at earlier tokens and take what it needs from them.",)),
    (("What is a cache?", "What is a KV cache?"),
     ("It keeps the keys and values of earlier tokens, so that they are computed only once.",)),
    (("Why is decoding slow?", "What limits your speed?"),
     ("Each new token needs all the weights once, so memory bandwidth is the limit.",)),
)  # fmt: skip

SYSTEMS = ("You are a helpful assistant.", "Answer briefly.", "You are tiny, a small model.")


def fixed(rng):
    """One of the standing questions with one of its answers."""
    questions, answers = rng.choice(FIXED)
    return rng.choice(questions), rng.choice(answers)


def fact(rng):
    """A question about a fact of the tables above."""
    kind = rng.randrange(4)
    if kind == 0:
        country = rng.choice(list(CAPITALS))
        return f"What is the capital of {country}?", f"The capital of {country} is {CAPITALS[country]}."
    if kind == 1:
        word = rng.choice(list(OPPOSITES))
        return f"What is the opposite of {word}?", f"The opposite of {word} is {OPPOSITES[word]}."
    animal = rng.choice(list(SOUNDS if kind == 2 else LEGS))
    if kind == 2:
        return f"What does a {animal} say?", f"A {animal} says {SOUNDS[animal]}."
    return f"How many legs does {words.article(animal)} {animal} have?", str(LEGS[animal])


def sequence(rng):
    """What follows in a fixed order: days, months, numbers."""
    kind = rng.randrange(3)
    if kind == 2:
        low = rng.randint(1, 80)
        high = low + rng.randint(2, 12)
        return f"Count from {low} to {high}.", " ".join(str(n) for n in range(low, high + 1))
    ring = (words.DAYS, words.MONTHS)[kind]
    at, step = rng.randrange(len(ring)), rng.choice((1, -1))
    return f"What comes {'after' if step == 1 else 'before'} {ring[at]}?", ring[(at + step) % len(ring)]


def listing(rng):
    """A small task on a list of words."""
    pool = rng.choice((words.ANIMALS, words.THINGS, words.COLORS, words.CITIES))
    items = rng.sample(pool, rng.randint(2, 6))
    text = ", ".join(items)
    tasks = {
        "Repeat": text,
        "Reverse": ", ".join(reversed(items)),
        "First word of": items[0],
        "Last word of": items[-1],
        "How many words are in": str(len(items)),
    }
    task = rng.choice(list(tasks))
    return f"{task}: {text}", tasks[task]


def naming(rng):
    """The user gives a name and is greeted by it."""
    name = rng.choice(words.FIRST_NAMES)
    return f"My name is {name}.", f"Nice to meet you, {name}!"


def converse(rng):
    """One to four exchanges; some begin with a system text, some with the thought that was switched off."""
    kinds = (fixed, fact, fact, sequence, listing, naming)
    pairs = [rng.choice(kinds)(rng) for _ in range(rng.randint(1, 4))]
    quiet = NO_THOUGHT if len(pairs) == 1 and rng.random() < 0.3 else ""
    system = rng.choice(SYSTEMS) if rng.random() < 0.3 else None
    first = Turn(ask(pairs[0][0], system) + quiet, pairs[0][1])
    rest = tuple(Turn(ask_again(question), answer) for question, answer in pairs[1:])
    return Sample("chat", tuple(question for question, _ in pairs if ", " in question), (first, *rest))


def held_out(rng):
    """A task on a list of at least four words; of the other questions there are too few to keep some back."""
    while True:
        question, answer = listing(rng)
        if question.count(", ") >= 3:
            return Sample("chat", (question,), (Turn(ask(question), answer),))
