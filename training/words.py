"""Word lists shared by the generators. Order matters: the generators index them with a seeded generator."""


def listed(text):
    """The words of a text as a tuple."""
    return tuple(text.split())


ANIMALS = listed(
    "fox bear owl mouse rabbit frog duck cat dog horse goat sheep hen wolf deer otter badger turtle snail "
    "crow robin whale seal bee ant lion tiger monkey parrot hedgehog"
)

PLACES = listed(
    "forest river garden village harbor meadow castle mountain valley island lake market mill bridge cave "
    "farm tower field beach library school kitchen attic orchard"
)

THINGS = listed(
    "lamp key map boat kite bell book drum coin ring hat rope basket ladder clock candle mirror apple "
    "cake lantern shell stone feather blanket"
)

MOODS = listed("happy sad tired brave curious quiet proud angry lonely hungry clever shy kind lazy")
COLORS = listed("red blue green yellow white black brown gray orange purple pink golden silver")
WEATHER = listed("sunny rainy cloudy windy snowy foggy stormy")
FRIENDS = listed("friend brother sister mother father cousin uncle aunt teacher neighbor")

# Keys of the recall skill: each must be one token of the tokenizer when it starts a line (a test holds this).
KEYS = listed(
    "maple river stone cloud amber ember cedar daisy eagle flame grape honey ivory jewel karma lemon "
    "mango night ocean pearl quartz raven solar tulip ultra velvet willow xenon yacht zebra acorn birch "
    "coral delta echo fern ginger hazel iris jade"
)

FIRST_NAMES = listed(
    "Ada Ben Clara David Emma Felix Grace Hugo Ivy Jack Kira Leo Mia Noah Olga Paul Quinn Rosa Sam Tara "
    "Uma Victor Wendy Xavier Yara Zoe Alan Bella Carl Dina Erik Fiona Gina Henry Irene Jonas Karen Liam "
    "Maria Nina Oscar Petra Ralph Sofia Tom Ursula Vera Walter Anna Boris"
)

LAST_NAMES = listed(
    "Brown Smith Clark Young King Wright Hill Scott Green Adams Baker Nelson Carter Mitchell Turner "
    "Parker Evans Collins Stewart Morris Rogers Reed Cook Morgan Bell Murphy Bailey Cooper Howard Ward "
    "Foster Gray Price Long Ross Wood Fisher Stone Hunt Palmer"
)

SYLLABLES = listed(
    "ba be bo da de di do fa fe ga go ha ka ke ki la le lo ma me mi mo na ne no pa po ra re ri ro sa se "
    "ta te ti to va ve vi"
)

CITIES = listed(
    "Oslo Paris Berlin Rome Madrid Vienna Prague Dublin London Lisbon Athens Cairo Tokyo Seoul Delhi Lima "
    "Quito Boston Denver Austin Dallas Seattle Chicago Toronto Sydney Hanoi Riga Bern Turin Porto"
)

JOBS = listed(
    "baker teacher doctor nurse farmer pilot lawyer painter singer driver writer plumber chef dentist "
    "gardener engineer librarian tailor sailor carpenter"
)

GOODS = listed(
    "apples pears books pens chairs lamps cups plates shoes shirts candles carrots eggs onions bricks "
    "towels bottles tickets stamps flowers"
)

DAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = listed("January February March April May June July August September October November December")
EVENTS = listed("meeting concert lecture picnic party workshop dinner exam game parade lesson interview")
ROOMS = listed("kitchen bedroom bathroom office hallway garage attic garden")
LANGUAGES = listed("French German Spanish Italian Greek Polish Dutch Latin Turkish Swedish")
CURRENCIES = listed("dollars euros yen pounds francs rupees pesos crowns")
MUSIC = listed("jazz rock folk opera blues pop piano guitar violin choir")


def surname(rng):
    """A last name; one in four is made of syllables, so that it has to be copied."""
    if rng.random() < 0.25:
        return "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 3))).capitalize()
    return rng.choice(LAST_NAMES)


def article(word):
    """'a' or 'an', whichever goes before `word`."""
    return "an" if word[0].lower() in "aeiou" else "a"
