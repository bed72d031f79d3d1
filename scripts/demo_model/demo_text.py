"""The demo model's training text and questions: stories, chats and tasks whose answers can be checked.

A document is a list of segments; a segment is raw text or one chat message, with a loss class that says how much predicting it
counts. `training_rows` packs documents into rows of tokens, `question` draws a fresh task with its exact answer. Everything is
drawn from the `random.Random` that the caller passes.
"""

import itertools
import random
import re
from typing import Iterator, NamedTuple

import numpy as np

import demo_stories as stories
from demo_tokenizer import BOS, END, EOS, DemoTokenizer

# Loss classes, kept in the bits above the token id.
IGNORED, TEXT, ANSWER = 0, 1, 2
CLASS_SHIFT = 12  # the vocabulary has at most 4,096 ids
TOKEN_MASK = (1 << CLASS_SHIFT) - 1

TASKS = ("sum", "difference", "count", "copy", "recall_short", "recall_long", "name")  # of questions
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")


class Segment(NamedTuple):
    role: str | None  # None: raw text, no chat message
    text: str
    loss_class: int


class Task(NamedTuple):
    question: str
    answer: str

    def turn(self, answer_class: int) -> list[Segment]:
        return [Segment("user", self.question, IGNORED), Segment("assistant", self.answer, answer_class)]


class Question(NamedTuple):
    """A task to evaluate: the conversation so far and the one right answer."""

    task: str
    messages: list[dict[str, str]]
    answer: str


SMALL_TALK = (
    ("[Hello|Hi|Hey|Good morning|Hello there][!|.|]", "[Hello! How can I help you?|Hi! What can I do for you?|Hello! What shall we do today?]"),
    ("How are you[?| today?]", "[I am fine, thank you. And you?|I am well, thank you for asking.|Very well! I feel like telling a story.]"),
    ("[Who are you?|What are you?|Are you a person?|Tell me about yourself.]",
     "I am [a very small language model. I tell stories, add numbers and remember codes.|the minfer demo, a tiny language model.]"),
    ("[What can you do?|Help|Help me.|What do you know?]",
     "I can tell stories, add and subtract numbers up to 99, count, repeat what you say, and remember codes."),
    ("[Thank you|Thanks|Thank you very much][!|.]", "[You are welcome!|It was a pleasure.|Any time!]"),
    ("[Goodbye|Bye|See you later|Good night][!|.]", "[Goodbye! See you soon.|Bye! It was nice to talk to you.|Sleep well!]"),
    ("[Are you sure?|Really?]", "[I think so, but I am a very small model.|Yes, I think so.]"),
    ("[Tell me a joke.|Do you know a joke?]",
     "[Why did the owl sit on the book? It wanted to be a wise bird.|What did the big kite say to the small kite? Hang on tight!]"),
    ("[Do you like|What do you think of] {toy}s?", "[Yes, I like {toy}s very much.|I know a good story about {a_toy}.]"),
    ("[What is your favourite colour?|Which colour do you like?]", "I like {colour} best."),
    ("[Why is the sky blue?|What is the meaning of life?|What is the weather like?|Who is the president?]",
     "[I do not know that. I am a very small model, but I can tell you a story.|That is too hard for me. Shall I tell you a story?]"))
SYSTEM_PROMPTS = (
    "You are a helpful assistant.", "You are a friendly assistant.", "You are a storyteller.", "Answer the questions.", "Be kind and short.",
    "You are a helpful assistant. Answer briefly.")
SUM_QUESTIONS = ("What is {a} plus {b}?",) * 4 + (
    "How much is {a} plus {b}?", "{a} plus {b}?", "What is {a} + {b}?", "{a} + {b} = ?", "Add {a} and {b}.", "Please add {a} and {b}.")
DIFFERENCE_QUESTIONS = ("What is {a} minus {b}?",) * 4 + (
    "How much is {a} minus {b}?", "{a} minus {b}?", "What is {a} - {b}?", "{a} - {b} = ?", "Subtract {b} from {a}.", "Take {b} away from {a}.")
COPY_PREFIXES = ("Repeat: ",) * 3 + ("Repeat after me: ", "Say: ", "Copy this: ", "Repeat:\n", "Please repeat this:\n")
CODE_QUESTIONS = ("What is the code of {name}?",) * 6 + (
    "Tell me the code of {name}.", "Do you remember the code of {name}?", "What was the code of {name}?", "What is {name}'s code?")
STORY_REQUESTS = (
    ("[Tell me a story|Please tell me a story|Tell a story|Can you tell me a story][.|!]", False, False),
    ("[Tell me|Write|I want to hear] a story about {a_kind} named {hero}.", True, False),
    ("[Tell me|Write] a story about {a_toy}.", False, True),
    ("[Tell me|Write] a [short |]story about {hero} and {a_toy}.", True, True),
)
WORDS = (*(
    "house tree water stone bread window table morning evening night summer winter river mountain cloud star moon sun rain snow wind "
    "fire horse bird fish flower grass leaf hand foot eye ear heart friend mother father sister brother child king queen city road "
    "bridge ship wheel letter word number question answer day week month year time hour minute second first last big small long short "
    "old new good bad fast slow warm cold happy sad quiet loud early late near far left right up down one two three four five six seven "
    "eight nine ten and or but not with from over under before after go come see hear think know find give take make run walk sing "
    "dance write read open close begin end work play sleep eat drink help ask tell show bring keep leave stay turn wait laugh cry smile"
).split(), *stories.COLOURS, *stories.TOYS, *stories.FOODS, *stories.ANIMALS, *stories.TRAITS)
_ONSETS = "b bl br c ch cl d dr f fl g gr h j k l m n p pl qu r s sh sk sl st t th tr v w y z".split()
_VOWELS = "a e i o u ai ea ee oo ou".split()
_CODAS = ["", "", "b", "ck", "d", "g", "l", "ll", "m", "n", "nd", "ng", "nt", "p", "r", "rd", "rt", "s", "ss", "st", "t", "th", "x"]


def invented_word(rng: random.Random) -> str:
    """A word of one to three syllables that is in no lexicon, so that copying is learnt and not only known words."""
    syllables = rng.choice((1, 2, 2, 3))
    return "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables))


def sum_task(rng: random.Random) -> Task:
    """a + b with operands to 99; two of three have a sum to 99 as well."""
    a, b = rng.randrange(100), rng.randrange(100)
    if a + b > 99 and rng.random() < 0.67:
        a, b = 99 - a, 99 - b
    return Task(rng.choice(SUM_QUESTIONS).format(a=a, b=b), f"{a} plus {b} is {a + b}.")


def difference_task(rng: random.Random) -> Task:
    """a - b with 0 <= b <= a <= 99."""
    b, a = sorted((rng.randrange(100), rng.randrange(100)))
    return Task(rng.choice(DIFFERENCE_QUESTIONS).format(a=a, b=b), f"{a} minus {b} is {a - b}.")


def count_task(rng: random.Random) -> Task:
    """Counting up or down over 3 to 16 numbers from 0 to 99."""
    first = rng.randrange(97)
    last = min(99, first + rng.randint(2, 15))
    numbers = list(range(first, last + 1))
    if rng.random() < 0.25:
        return Task(f"Count down from {last} to {first}.", ", ".join(map(str, reversed(numbers))) + ".")
    return Task(f"Count from {first} to {last}.", ", ".join(map(str, numbers)) + ".")


def copy_task(rng: random.Random) -> Task:
    """Repeating 1 to 12 words, a sentence of a story, or digits."""
    prefix, kind = rng.choice(COPY_PREFIXES), rng.random()
    if kind < 0.6:
        words = [rng.choice(WORDS) if rng.random() < 0.75 else invented_word(rng) for _ in range(rng.randint(1, 12))]
        words[0] = rng.choice(WORDS)
        text = " ".join(words)
    elif kind < 0.85:
        text = rng.choice(_SENTENCE_END.split(stories.story(rng)))
    else:
        text = " ".join(str(rng.randrange(100)) for _ in range(rng.randint(2, 10)))
    return Task(prefix + text, text)


CHECKED = {"sum": sum_task, "difference": difference_task, "count": count_task, "copy": copy_task}


def small_talk(rng: random.Random) -> Task:
    toy = rng.choice(stories.TOYS)
    slots = {"toy": toy, "a_toy": stories.with_article(toy), "colour": rng.choice(stories.COLOURS)}
    question, answer = rng.choice(SMALL_TALK)
    return Task(stories.expand(rng, question, slots), stories.expand(rng, answer, slots))


def story_request(rng: random.Random) -> Task:
    hero, toy = stories.pick_hero(rng), rng.choice(stories.TOYS)
    request, names_hero, names_toy = rng.choice(STORY_REQUESTS)
    slots = {"hero": hero[0], "a_kind": stories.with_article(hero[1]), "a_toy": stories.with_article(toy)}
    text = stories.story(rng, hero if names_hero else None, toy if names_toy else None)
    return Task(stories.expand(rng, request, slots), text)


def code_owners(rng: random.Random, names_only: bool = False) -> Iterator[str]:
    """An endless stream of different things that can have a code: mostly names, some invented, some like "the red boat"."""
    names = rng.sample(stories.GIRLS + stories.BOYS, len(stories.GIRLS) + len(stories.BOYS))
    used: set[str] = set()
    while True:
        kind = 0.0 if names_only else rng.random()
        if kind < 0.8 and names:
            owner = names.pop()
        elif kind < 0.92:
            owner = invented_word(rng).capitalize()
        else:
            owner = f"the {rng.choice(stories.COLOURS)} {rng.choice(stories.TOYS)}"
        if owner not in used:
            used.add(owner)
            yield owner


def code_of(rng: random.Random) -> str:
    return f"{rng.randrange(10000):04d}"


def code_fact(rng: random.Random, owner: str, code: str) -> str:
    form = rng.random()
    if form < 0.1 and not owner.startswith("the "):
        return f"{owner}'s code is {code}."
    if form < 0.25:
        return f"Remember: the code of {owner} is {code}."
    return f"The code of {owner} is {code}."


def code_task(rng: random.Random, owner: str, code: str) -> Task:
    return Task(rng.choice(CODE_QUESTIONS).format(name=owner), f"The code of {owner} is {code}.")


def chat_document(rng: random.Random, owners: Iterator[str]) -> list[Segment]:
    """A conversation of 1 to 8 turns, with or without a system prompt."""
    segments, later = [], []
    if rng.random() < 0.35:
        segments, later = _opening(rng)
    for _ in range(rng.choice((1, 1, 2, 3, 4, 6, 8))):
        kind = rng.random()
        if kind < 0.66:
            segments += rng.choice(list(CHECKED.values()))(rng).turn(ANSWER)
        elif kind < 0.78:
            segments += small_talk(rng).turn(TEXT)
        elif kind < 0.86:
            segments += story_request(rng).turn(TEXT)
        elif kind < 0.94 or not later:
            owner, code = next(owners), code_of(rng)
            reply = rng.choice((f"I will remember the code of {owner}.", f"The code of {owner} is {code}. I will remember it."))
            segments += Task(code_fact(rng, owner, code), reply).turn(ANSWER)
            later.append(code_task(rng, owner, code))
        else:
            segments += later.pop(rng.randrange(len(later))).turn(ANSWER)
    for task in rng.sample(later, len(later)):
        segments += task.turn(ANSWER)
    return segments


def _opening(rng: random.Random) -> tuple[list[Segment], list[Task]]:
    """A system prompt or an introduction, and what can be asked about it later."""
    name = rng.choice(stories.GIRLS + stories.BOYS)
    form = rng.random()
    if form < 0.5:
        return [Segment("system", rng.choice(SYSTEM_PROMPTS), IGNORED)], []
    if form < 0.75:
        return [Segment("system", f"Your name is {name}.", IGNORED)], [Task("What is your name?", f"My name is {name}.")]
    introduction = Task(f"My name is {name}.", f"Nice to meet you, {name}!")
    return introduction.turn(ANSWER), [Task("What is my name?", f"Your name is {name}.")]


def _filler_with_facts(rng: random.Random, tokenizer: DemoTokenizer, num_tokens: int, facts: list[str]) -> str:
    """About `num_tokens` tokens of stories in which the facts stand between sentences; never more than that."""
    sentences: list[str] = []
    left = num_tokens - sum(len(tokenizer.encode_plain(fact)) for fact in facts)
    for sentence in (sentence for _ in itertools.count() for sentence in _SENTENCE_END.split(stories.story(rng))):
        left -= len(tokenizer.encode_plain(sentence))
        if left < 0:
            break
        sentences.append(sentence)
    places = sorted((0 if rng.random() < 0.2 else rng.randint(0, len(sentences)) for _ in facts), reverse=True)
    for place, fact in zip(places, facts):
        sentences.insert(place, fact)
    return " ".join(sentences)


def recall_document(rng: random.Random, tokenizer: DemoTokenizer, owners: Iterator[str], num_tokens: int) -> list[Segment]:
    """Codes hidden in stories, then questions about them, together about `num_tokens` tokens; one of four is raw text without a chat.

    There is often a single question, so that many of the first answers stand in the last tokens of a row.
    """
    max_facts = max(1, min(12, num_tokens // 40))
    codes = {next(owners): code_of(rng) for _ in range(rng.randint(1, max_facts))}
    facts = [code_fact(rng, owner, code) for owner, code in codes.items()]
    max_tasks = 1 if rng.random() < 0.4 else max(1, num_tokens // 80)
    asked = rng.sample(list(codes.items()), len(codes))[:max_tasks]
    tasks = [code_task(rng, owner, code) for owner, code in asked]
    is_raw = rng.random() < 0.25
    end = [segment for task in tasks for segment in ([Segment(None, task.answer, ANSWER)] if is_raw else task.turn(ANSWER))]
    text = _filler_with_facts(rng, tokenizer, max(40, num_tokens - len(encode_document(tokenizer, end))), facts)
    if is_raw:
        return [Segment(None, text, TEXT), *end]
    return [Segment("user", f"{text} {end[0].text}", TEXT), *end[1:]]


def encode_document(tokenizer: DemoTokenizer, segments: list[Segment]) -> list[int]:
    """Tokens of a document with their loss classes above the id: <s>, raw text up to </s>, messages up to <|end|>."""
    packed = [tokenizer.special[BOS]]
    for segment in segments:
        loss_class = segment.loss_class << CLASS_SHIFT
        if segment.role is None:
            packed += [token | loss_class for token in tokenizer.encode_plain(segment.text)]
            continue
        packed.append(tokenizer.special[f"<|{segment.role}|>"])
        header, *content = tokenizer.encode_plain("\n" + segment.text)[1:]
        packed += [tokenizer.encode_plain("\n")[0], header]
        packed += [token | loss_class for token in content]
        packed.append(tokenizer.special[END] | (loss_class if segment.role == "assistant" else 0))
    if segments[-1].role is None:
        packed.append(tokenizer.special[EOS] | TEXT << CLASS_SHIFT)
    return packed


def training_rows(rng: random.Random, tokenizer: DemoTokenizer, num_rows: int, length: int, recall_share: float) -> np.ndarray:
    """Rows [num_rows, length] int16 of tokens with loss classes; a share of the rows opens with a recall document."""
    rows = np.empty((num_rows, length), np.int16)
    for row in rows:
        owners = code_owners(rng)  # different within a row, so that no fact is repeated with another code
        packed: list[int] = []
        if rng.random() < recall_share:
            num_tokens = int(length * rng.choice((1, 1, rng.uniform(0.2, 1))))  # questions occur up to the row's end
            packed += encode_document(tokenizer, recall_document(rng, tokenizer, owners, num_tokens))
        while len(packed) < length:
            is_story = rng.random() < 0.3
            document = [Segment(None, stories.story(rng), TEXT)] if is_story else chat_document(rng, owners)
            packed += encode_document(tokenizer, document)
        row[:] = packed[:length]
    return rows


def vocabulary_texts(rng: random.Random, num_documents: int) -> Iterator[str]:
    """Texts to learn the vocabulary from: what training_rows encodes, and invented words for the syllables of unknown ones."""
    owners = code_owners(rng)
    for _ in range(num_documents):
        yield stories.story(rng)
        for segment in chat_document(rng, owners):
            yield "\n" + segment.text
        yield " ".join(rng.choice(WORDS) for _ in range(20))
        yield " ".join(invented_word(rng) for _ in range(6))


def question(rng: random.Random, tokenizer: DemoTokenizer, task: str, context: int) -> Question:
    """A fresh question of one of TASKS; `context` is the number of tokens that prompt and answer may take together."""
    if task in CHECKED:
        asked = CHECKED[task](rng)
        return Question(task, [{"role": "user", "content": asked.question}], asked.answer)
    if task == "name":
        name = rng.choice(stories.GIRLS + stories.BOYS)
        messages = [{"role": "system", "content": f"Your name is {name}."}, {"role": "user", "content": "What is your name?"}]
        return Question(task, messages, f"My name is {name}.")
    num_tokens = context - 60 if task == "recall_long" else rng.randint(context // 16, context // 4)
    names = code_owners(rng, names_only=True)
    codes = {next(names): code_of(rng) for _ in range(rng.randint(1, 6))}
    facts = [f"The code of {owner} is {code}." for owner, code in codes.items()]
    owner = rng.choice(list(codes))
    text = _filler_with_facts(rng, tokenizer, num_tokens, facts)
    messages = [{"role": "user", "content": f"{text} What is the code of {owner}?"}]
    return Question(task, messages, f"The code of {owner} is {codes[owner]}.")
