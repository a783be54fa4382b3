"""Prompts of the kinds that `python -m benchmarks speculate` chats with, and some that ask for code. None is its own.

python -m experiments.compress.head_prompts FILE [COUNT]      for `surefoot distill MODEL --head OUT --text FILE`
"""

import random
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speculate.prompts import TOPICS as HELD_OUT

TOPICS = """
    how tides work; why ice floats; how a clock keeps time; what a librarian does; how honey is made; why birds
    migrate; how to bake a cake; what an engine does; how soap cleans; why the moon has phases; how to tie a knot;
    what a judge does; how paper is made; why volcanoes erupt; how computers store numbers; what inflation is; how
    trees drink; why iron rusts; how aeroplanes fly; what a painter needs; how to train a dog; why we sleep; how
    the heart beats; what a desert is; how magnets pull; why salt melts ice; how rainbows form; what a good
    teacher does; how to save money; why onions make us cry; how the internet works; what gravity is; how snakes
    move; why we laugh; how to write a letter; what a satellite is; how wind turns into electricity; why metal
    feels cold; how mirrors work; what an atom is; how fish breathe; why stars twinkle; how to grow tomatoes; what
    a compiler does; how cheese is made; why seasons change; how ships float; what a vaccine trial is; how spiders
    spin webs; why bread goes stale; how batteries work; what democracy means; how to cook rice; why dogs bark;
    how maps are drawn; what a fossil is; how echoes arise; why water boils; how to play chess; what an orchestra
    is; how bees find flowers; why the sea is salty; how elevators work; what a black hole is; how to read music;
    why we have two ears; how coffee is roasted; what a bank does; how whales talk; why leaves are green; how a
    camera sees; what insurance is; how to repair a tyre; why we forget; how lightning strikes; what a firefighter
    does; how rockets steer; why cities grow; how silk is made; what a referee does; how to be patient; why glue
    sticks; how kites fly; what a coral reef is; how memory works; why paint dries; how to swim faster; what a tax
    is; how wells are dug; why mountains rise; how a piano makes sound; what an archive keeps; how to calm a baby;
    why ducks stay dry; how concrete hardens; what a detective does; how plants turn to light; why planes leave
    trails; how wool becomes cloth; what makes a good team; how to fold a paper boat; why fire needs air; how the
    eye works; what an island is; how a fridge cools; why bells ring; how to choose a book; what a harbour pilot
    does; how worms help soil; why hair turns grey; how candles burn; what a recipe is; how to draw a horse; why
    we yawn; how a zip works; what a museum guard sees; how rice is grown; why owls see at night
"""
MORE_TOPICS = """
    how a kettle boils; why the wind blows; what a beekeeper does; how to pack a suitcase; why knives get blunt;
    how a library is ordered; what a volcano leaves behind; how to mend a sock; why bananas turn brown; how snow
    forms; what a midwife does; how to sharpen a pencil; why fireflies glow; how a lock opens; what an election
    is; how to plan a journey; why deserts are cold at night; how ink is made; what a plumber does; how to speak
    in public; why popcorn pops; how a radio finds a station; what a contract is; how to grow herbs; why dogs wag
    their tails; how a bridge is painted; what a comet is; how to keep a diary; why the ear hurts in a plane; how
    a tunnel is dug; what a carpenter does; how to boil an egg; why wood floats; how a telescope works; what a
    budget is; how to make friends in a new town; why mirrors fog; how sugar is made; what a translator does; how
    to sleep better; why geese fly in a V; how a crane lifts; what a patent is; how to learn a language; why grass
    is mown; how a violin is built; what a nurse does; how to read a map; why the desert blooms; how a thermometer
    works; what a museum is for; how to start a fire safely; why cars skid; how salt is won; what an architect
    does; how to clean a window; why bubbles are round; how a submarine dives; what a strike is; how to choose
    shoes; why milk turns sour; how a dam holds water; what a farmer does in winter; how to ask a good question;
    why fish live in schools; how a printer prints; what a rumour is; how to bring up a kitten; why thunder
    follows lightning; how a windmill turns; what a surgeon does; how to bake bread without yeast; why we blush;
    how a turbine works; what a colony of ants does; how to write a poem; why rivers bend; how a microphone hears;
    what a law is; how to paint a wall; why hands wrinkle in water; how cotton is picked; what a pilot checks; how
    to share a flat; why the tide turns; how a battery charges; what a notary does; how to fix a bicycle chain;
    why plants climb; how a laser works; what a wedding needs; how to store potatoes; why cats land on their feet;
    how a newspaper is made; what a baker does at night; how to save water; why apples float; how a parachute
    opens; what a museum label says; how to swim in the sea; why leather lasts; how a signal travels; what a
    trainer does; how to remember names; why bees dance; how a roof keeps dry; what an inventor needs; how to say
    sorry; why glaciers move; how a scale weighs; what a ranger does; how to make soup; why the night is dark; how
    a carpet is woven; what a stock exchange is; how to build a nest box; why chalk writes; how a lifeboat is
    launched; what a census counts; how to juggle; why peppers burn; how a drum is tuned; what a gardener does in
    spring; how to write a report; why ships have anchors; how a pearl grows; what a referendum is; how to train
    for a race; why eggs are oval; how a mill grinds; what a diver sees; how to calm down; why flags flutter; how
    a bus timetable is made; what a promise is; how to draw a face; why owls turn their heads; how a stamp is
    printed; what a tailor does; how to feed birds in winter; why metal conducts; how a greenhouse warms; what a
    mayor does; how to keep bees; why sound is slower than light; how a tent stands; what a treaty is; how to wrap
    a present; why camels have humps; how a puppet moves; what a geologist looks for; how to lose a game well; why
    dew falls; how a well pump works; what a pension is; how to cut hair; why lemons are sour; how a mosaic is
    laid; what a stage manager does; how to find north; why elephants have trunks; how a barometer works; what a
    scholarship is; how to cross a river; why yeast needs sugar; how a bell is cast; what a shepherd does; how to
    make jam; why shadows grow long; how a ferry docks; what a hypothesis is; how to build a sandcastle; why crows
    are clever; how a loom works; what a jury decides; how to wash wool; why clouds are white; how a lantern
    burns; what a recipe leaves out; how to cheer somebody up; why roots grow down; how a glider stays up; what an
    editor does; how to hang a picture; why rubber bounces; how a vineyard is tended; what a blacksmith does; how
    to set a table; why parrots talk; how a quilt is sewn; what a storm surge is; how to save seeds; why steel is
    strong; how a chess clock works; what a curator does; how to plant a tree; why dust settles; how a typewriter
    types; what a warranty is; how to tell a joke; why moths fly to lamps; how a canal lock works; what a
    locksmith does; how to learn the guitar; why sand is fine; how an umbrella opens; what a dialect is; how to
    grow old gladly; why bats hang upside down; how a hinge turns; what a quarry is; how to row a boat; why tea
    stains; how a sundial tells time; what a conductor of trains does; how to write a will; why squirrels hide
    nuts; how a filter cleans water; what an apprentice learns
"""
TASKS = """
    reverses a linked list; checks whether a string is a palindrome; finds the longest common prefix of a list of
    strings; merges two sorted lists; parses a CSV line with quotes; computes the nth Fibonacci number; counts
    words in a text; finds prime numbers up to n; sorts a list with quicksort; does a binary search; converts
    Roman numerals to integers; validates an email address; flattens a nested list; finds all permutations of a
    string; solves the tower of Hanoi; computes the edit distance of two strings; reads a JSON file and prints its
    keys; groups words that are anagrams; implements a stack with a list; implements an LRU cache; finds the
    shortest path in a graph; computes the greatest common divisor; rotates a matrix; checks balanced brackets;
    converts Celsius to Fahrenheit; generates a random password; removes duplicates from a list; finds the second
    largest number; computes the factorial of a number; transposes a matrix; downloads a web page; counts the
    vowels of a string; draws a triangle of stars; simulates a bank account; computes compound interest; finds the
    median of a list; multiplies two matrices; encodes text with the Caesar cipher; finds missing numbers in a
    range; walks a directory and sums file sizes; parses command line arguments; retries a function with back-off;
    measures the time of a function; validates a Sudoku board; finds the maximum subarray sum; implements a queue
    with two stacks; builds a binary tree and prints it in order; converts a number to binary; capitalises each
    word of a sentence; splits a list into chunks; merges two dictionaries; finds the intersection of two lists;
    plays tic-tac-toe; computes the mean and standard deviation; reads lines from a file and numbers them;
    implements a trie; finds cycles in a linked list; computes the power set; formats a date; schedules tasks by
    priority
"""
ABOUT = (
    "Explain to a child {}.",
    "Write a short story in which somebody finds out {}.",
    "Give five facts about {}.",
    "Write a short essay on {}.",
)
OTHERWISE = (
    "Tell me {}.",
    "Write a poem about {}.",
    "Write a dialogue between a teacher and a pupil about {}.",
    "What are common mistakes when people talk about {}?",
    "Write an email to a colleague that explains {}.",
    "I have always wondered about {}. Can you help?",
)
CODE = (
    "Write a Python function that {}.",
    "Write a JavaScript function that {}.",
    "Write a C++ function that {}, and explain how it works.",
    "Write unit tests in Python for a function that {}.",
    "Write a Rust function that {}.",
)


def listed(text: str) -> list[str]:
    return " ".join(text.split()).split("; ")


def prompts() -> list[str]:
    """In the order of how much they are like what the benchmark asks."""
    topics, more = listed(TOPICS), listed(MORE_TOPICS)
    kinds = formed(ABOUT, topics) + formed(CODE, listed(TASKS)), formed(ABOUT, more), formed(OTHERWISE, topics + more)
    for some in kinds:
        random.Random(7).shuffle(some)
    return [prompt for some in kinds for prompt in some]


def formed(forms: Sequence[str], things: Sequence[str]) -> list[str]:
    return [form.format(thing) for form in forms for thing in things if thing not in HELD_OUT]


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else None
    Path(sys.argv[1]).write_text("\n".join(prompts()[:count]) + "\n", encoding="utf-8")
