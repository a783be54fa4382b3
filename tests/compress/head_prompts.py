"""Prompts of the kinds that `surefoot bench speculate` chats with, and some that ask for code; none is one of its own.

python -m tests.compress.head_prompts FILE [COUNT]      for `surefoot distill MODEL --head OUT --text FILE`
"""

import random
import sys
from pathlib import Path

from surefoot.bench.speculate_tasks import TOPICS as HELD_OUT

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
    topics = [topic for topic in listed(TOPICS) if topic not in HELD_OUT]
    made = [form.format(topic) for form in ABOUT for topic in topics]
    made += [form.format(task) for form in CODE for task in listed(TASKS)]
    random.Random(7).shuffle(made)
    return made


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else None
    Path(sys.argv[1]).write_text("\n".join(prompts()[:count]) + "\n", encoding="utf-8")
