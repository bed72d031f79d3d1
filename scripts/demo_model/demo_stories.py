"""Short stories from a grammar: the plain text that the demo model learns to continue.

A story is a hero, a place and a plot. A plot is a list of beats in order of cause and effect; a beat is a template. In templates
`[a|b|c]` picks one alternative (they nest) and `{slot}` is filled from the story's cast, so a name, a thing or a pronoun stays the
same from the first sentence to the last. Everything is drawn from the `random.Random` that the caller passes.
"""

import random
import re

GIRLS = (
    "Anna Mia Lily Emma Zoe Nora Ella Ruby Clara Lucy Maya Alice Rosa Ida Tara Julia Nina Eva Sara Hanna Lena Olga Kate Jane Molly "
    "Grace Daisy Hazel Ivy Amy Leila Yuki Priya Carmen Freya Greta Helen Iris Paula Wendy"
).split()
BOYS = (
    "Tom Ben Max Leo Sam Jack Finn Oscar Hugo Noah Adam Luke Paul Peter Felix Karl Omar Ravi Ken Theo Tim Jonas Emil Milo Otto Hans "
    "Bruno David Simon Oliver Henry George Frank Victor Walter Robert Martin Daniel Marco Ali"
).split()
ANIMALS = "fox rabbit bear mouse hedgehog owl squirrel frog duck cat dog badger turtle goat pony raccoon beaver sparrow otter mole".split()
TRAITS = "kind brave curious shy careful cheerful clever quiet playful gentle patient funny friendly thoughtful lively honest".split()
COLOURS = "red blue green yellow white black brown purple orange pink silver golden grey".split()
TOYS = (
    "ball kite drum doll boat whistle hat scarf lantern book bell basket ribbon spoon key marble top wagon flute button blanket "
    "cup map feather coat mirror puzzle train balloon pencil umbrella violin"
).split()
FOODS = "apple pear cake pie sandwich plum carrot muffin cookie peach bun pancake orange cherry tart".split()
PLACES = (
    "park|garden|forest|village|meadow|harbour|market|school|library|farm|hill|valley|lake|river|beach|old mill|castle|orchard|"
    "train station|barn"
).split("|")
HIDING = (
    "under a pile of leaves|behind the big oak tree|in the long grass|beside the well|under the bridge|between two stones|"
    "next to the fence|behind a rose bush|under an old bench|behind the stone wall|in a hollow tree|at the foot of the hill"
).split("|")
SKILLS = "swim|whistle|ride a bike|draw a horse|bake bread|climb the big tree|play the flute|skate|row a boat|tie a knot|juggle|sing".split("|")
SEEDS = "sunflower bean pumpkin tomato tulip rose apple pea".split()
DISHES = "soup|stew|bread|apple pie|pancakes|a big cake|jam|porridge".split("|")

_ALTERNATIVES = re.compile(r"\[([^\[\]]*)\]")
_SENTENCE_START = re.compile(r"(^\"?|[.!?] \"?)([a-z])")  # not after a closing quote: "Oh no!" said Ben.

OPENINGS = (
    "Once upon a time, there was {a_trait} {kind} named {hero}. {he} [lived|had a home] [near|by|close to] the {place}.",
    "Once upon a time, {in_place}, there lived {a_trait} {kind} named {hero}.",
    "Once upon a time there [was|lived] a [little|small|young] {kind} named {hero}. {hero} was very {trait}.",
    "There once was a [little|small|young] {kind} called {hero}, who [lived|had a home] near the {place}.",
    "{hero} was {a_trait} {kind}. {he} [loved|liked] [to walk|to play|to go] to the {place} [every day|in the morning|after lunch].",
    "[One|On a] [sunny|cold|windy|quiet|bright|misty] [morning|day], {a_trait} {kind} named {hero} [went|walked] to the {place}.",
    "In a [small|quiet|faraway|busy] town, there was {a_trait} {kind} named {hero}.",
)

FRIEND_BEAT = "{his} best friend was {friend}, {a_kind2}. [They did everything together.|They played together every day.|]"

# A beat a line.
PLOTS = [plot.split("\n") for plot in '''\
{hero} had {a_colour} {toy}. [It was {his} favourite thing in the world.|{grandma} had given it to {him}.|{he} took it everywhere.]
One day, the {toy} was gone. [{hero} was very sad.|{hero} began to cry.|"Where is my {toy}?" asked {hero}.]
{he} looked {hiding2}, but it was not there. [Then {he} looked {hiding3}, but it was not there either.|]
{friend} [saw|heard] {him} and asked, "What is wrong?"
"I lost my {colour} {toy}," said {hero}. "[Can you help me?|I do not know where it is.]"
"Let us think," said {friend}. "Where did you [play|have it] last?" {hero} [thought|thought hard] and remembered.
They ran back to the {place}. There, {hiding}, was the {colour} {toy}!
{hero} [hugged {friend}|laughed and danced|jumped for joy]. "Thank you for helping me," {he} said.
From that day on, {hero} always put the {toy} [in the same place|back on the shelf|away] before going to bed.

One day, {grandma} gave {him} {a_food}. It [smelled|looked] [very good|wonderful|sweet].
{hero} wanted to eat it all alone. {he} sat down {hiding}[ and smiled| where nobody could see {him}|].
Then {friend} came by. {friend} looked [tired and hungry|sad|cold and hungry].
"I have had nothing to eat today," said {friend}.
{hero} looked at the {food}. {he} [was hungry too, but {he} felt sorry for {friend}|thought about it for a long time].
So {he} broke the {food} in two and gave one half to {friend}. ["This is for you," {he} said.|"We can share," {he} said.]
They ate together and [laughed|told jokes|watched the clouds]. The {food} tasted [even better|twice as good] that way.
[The next day|A week later], {friend} came back with a basket full of berries and shared them with {hero}.
{hero} learned that [sharing makes everyone happy|good things grow when you share them].

{hero} had a secret. {he} was afraid of [the dark|thunder|deep water|loud noises|the old bridge].
When {his} friends [played near the {place}|went out to play], {he} always stayed at home.
One evening, {hero} heard a small voice. "Help! Help!" It was {friend}, who was stuck {hiding}.
{hero} was [scared|afraid|shaking], but {he} knew that {friend} needed {him}.
{he} took {his} {toy} in one hand, [closed {his} eyes, and counted to three|took a deep breath, and went out].
Step by step, {he} came closer. ["I am coming!" {he} called.|{his} heart was beating fast.]
At last {he} found {friend} and pulled {him2} free.
"You are so brave!" said {friend}. {hero} was surprised. {he} had [forgotten to be afraid|not thought about being afraid at all].
After that, {he} was still a little scared sometimes, but {he} knew that [{he} could be brave|being brave means trying anyway].

[One morning|After a storm], {hero} found a [tiny|small] bird {hiding}. Its wing was hurt and it could not fly.
"Poor little bird," said {hero}. {he} [put it carefully into a box|wrapped it in a warm scarf] and took it home.
Every day, {hero} gave the bird water and seeds. [{friend} helped {him}.|{friend} came to visit and sang to it.]
Slowly, the wing got better. The bird began to [sing|hop around the room|eat from {his} hand].
One day, {hero} opened the window. {he} was sad, but {he} knew that [a bird belongs in the sky|it was time to say goodbye].
The bird flew up, [turned around once|made a circle over the house], and was gone.
[When spring came|Many weeks later], {hero} heard a song outside. The bird was back, and it had brought {a_colour} feather.
{hero} kept the feather [all {his} life|in a little box] and smiled every time {he} saw it.

{hero} and {friend} wanted to have a picnic [at|near] the {place}. They packed {a_food}, {a_food2} and a bottle of juice.
They were [walking|singing on the way] when dark clouds came. Soon it began to rain.
"Oh no!" said {friend}. "Our picnic is ruined!" [They were wet and cold.|{friend} began to cry.]
But {hero} had an idea. "Come with me," {he} said. [They ran home as fast as they could.|They ran through the rain and laughed.]
{he} put {a_colour} blanket on the floor[, some flowers in a cup,|] and lit a small lamp.
"This is our meadow," said {hero}, "and the lamp is our sun."
They ate the {food} and the {food2} and listened to the rain on the roof.
"This is the best picnic ever," said {friend}. And {hero} thought so too.

{hero} wanted to build a [boat|tree house|bridge|cart|little house]. {he} asked {friend} to help.
They [found|collected] some wood, a rope and {a_colour} {toy}. They worked [all morning|very hard].
But when they [tried it|were done], it broke into pieces. [{friend} wanted to give up.|"It is no good," said {friend}.]
"Let us look at what went wrong," said {hero}. They saw that the [rope was too short|wood was too thin|knots were too loose].
So they went to {grandma}, who [gave them a longer rope|showed them a better way|had just what they needed].
They tried again, slowly and carefully this time. [It took until evening.|{hero} held the wood and {friend} tied the knots.]
And this time it held! {hero} and {friend} [cheered|danced around it|shouted with joy].
They put the {toy} on top, so that everyone could see it. [They had learned that trying again is worth it.|They were very proud.]

One day, {hero} was playing with {a_colour} {toy} inside the house. {grandma} had said not to, but {he} did not listen.
Crash! The {toy} hit a [vase|lamp|cup|plate] and it broke.
{hero} was afraid. {he} hid the pieces {hiding} and said nothing.
At dinner, {grandma} asked, "[Did you see what happened?|Do you know what made that noise?]" {hero} shook {his} head.
That night {he} could not sleep. {his} tummy [hurt|felt heavy]. {he} knew that {he} had to tell the truth.
In the morning, {he} said, "I broke it. I am sorry."
{grandma} [smiled|looked at {him} kindly]. "Thank you for telling me. That was not easy."
Together they [glued the pieces|cleaned up and made a new one from clay]. {hero} felt [light and happy|much better] again.

{hero} wanted to learn to {skill}. All {his} friends could do it, but {he} could not.
{he} tried once, and it did not work. {he} tried again, and [it was even worse|it did not work either].
"I will never learn it," said {hero} and [sat down|kicked a stone].
"Nobody can do it on the first day," said {friend}. "I needed [a whole week|many days]. [Let me show you.|Try a little every day.]"
So {hero} practised every day [after breakfast|before dinner|near the {place}]. [Some days were hard, but {he} did not stop.|]
On the [fifth|seventh|tenth] day, it happened. {hero} could {skill}!
"Look at me!" {he} shouted. {friend} clapped and [laughed|cheered].
Now, when somebody says "I can not do it", {hero} answers, "[Not yet!|Try a little every day!]"

It was {his} birthday, but nobody [said anything|seemed to remember]. {friend} was not at home, and the {place} was empty.
{hero} felt [sad|lonely|forgotten]. {he} walked around and held {his} {colour} {toy}.
Then {he} saw {a_food} on the ground. A little further there was [another one|one more]. ["How strange," said {hero}.|]
{he} followed them past the {place2} and over the bridge, until {he} came to [a big tent|an old barn|{grandma_s} house].
It was dark inside. {hero} opened the door slowly.
"Surprise!" shouted {friend} and all the others. There was a big cake, and [music|balloons|lanterns] everywhere.
"We did not forget you," said {friend}. "We were [hiding|busy] all day!"
{hero} laughed until {his} tummy hurt. It was the best birthday of all.

Every year there was a big race around the {place}. {hero} [wanted to win|had trained for weeks].
"The winner gets {a_colour} {toy}," said {grandma}. "Ready, set, go!"
{hero} ran [fast|like the wind]. Soon {he} was in front of everyone.
Then {he} heard a cry behind {him}. {friend} had fallen and [hurt {his2} foot|could not get up].
{hero} looked at the finish. It was so close. But {he} [stopped|turned around] and ran back to {friend}.
"Hold on to me," {he} said. Together they walked to the end, and they were the last ones.
But everybody clapped and cheered. [{grandma} gave both of them a prize.|Even the winner came to shake {his} hand.]
"You did not win the race," said {friend}, "but you are [a real friend|the best friend anyone can have]."

One spring day, {hero} found a [small|tiny|round] seed {hiding}. "What will it be?" {he} asked.
{grandma} said, "Put it into the ground, give it water, and wait."
So {hero} planted the seed near the {place}. Every day {he} gave it water. But nothing happened.
"It is [broken|asleep]," said {friend}. "Wait," said {hero}. [{he} was sad, but {he} went on.|"Good things take time."]
[After many days|One morning], there was a little green leaf! {hero} [called|ran to get] {friend}.
The plant grew and grew. By summer it was a big {seed} plant, taller than {hero}.
{he} gave {friend} some of the new seeds in {a_colour} bag. "Now you can wait too," {he} said, and they both laughed.

In an old book, {hero} found a map. It showed the {place}, a path, and a big red cross.
"A treasure!" said {hero}. {he} showed the map to {friend}, and they [set out at once|packed a bag and went].
They walked past the {place2}, over a [small|narrow] bridge, and up a [steep|green] hill. [The sun was hot.|The wind blew hard.]
"The cross must be here," said {friend}. They looked {hiding} and found a box.
Inside there was no gold. There was only {a_colour} {toy} and a letter.
The letter said, "[Whoever finds this has a good friend|The way was the treasure]. [Keep it or hide|Now hide] something new for the next one."
So they [took the {toy}|left the {toy} there] and put {a_food} into the box. [Then they drew a new map.|They giggled all the way home.]
"That was a real adventure," said {hero}.

One afternoon, {hero} followed {a_colour} butterfly deep into the woods. When {he} looked up, {he} did not know where {he} was.
"Hello?" {he} called, but [nobody answered|only the trees answered]. It was getting dark.
{hero} sat down under a tree. {he} was [frightened|a little afraid], but {he} remembered what {grandma} had said.
"If you are lost, find [the river and follow it|the brightest star and walk towards it]."
So {he} [listened|looked] carefully and walked on. On the way {he} met {friend}, who was lost as well.
"Come with me," said {hero}. "I know what to do." They held hands so that they would not lose each other.
After a long walk they saw [a light|smoke from a chimney]. It was {grandma_s} house!
{grandma} gave them warm {dish} and [a big hug|dry socks]. They were safe at last.

{hero} and {friend} wanted to make {dish} for {grandma}. They put on their aprons and began.
{hero} read the book, and {friend} stirred. But there was no [salt|sugar|milk|flour|butter] in the house!
"I will go and ask the neighbours," said {hero}. {he} ran to the {place}.
An old [man|woman] said, "You can have some, if you help me carry this basket." So {hero} carried the basket.
When {he} came back, {friend} had [cleaned the table|put flowers on the table]. Now they could finish.
Soon the house smelled wonderful. {grandma} came in and [stopped in surprise|clapped {her} hands].
"For me?" {gshe} asked. {gshe_cap} tasted it and said it was the best that {gshe} had ever had.
{hero} and {friend} looked at each other and smiled. [Then they ate until nothing was left.|Nobody spoke about the mess in the kitchen.]

At night, {hero} heard a strange noise. Scratch, scratch, scratch. It came from {hiding_far}.
{he} pulled the blanket over {his} head. ["Maybe it is a monster," {he} thought.|"Who is there?" {he} whispered.]
Scratch, scratch. {hero} took a lamp and [woke up {friend}|called {friend}]. Together they went to look.
{friend} opened the door, and {hero} held up the lamp. Two [green|yellow|bright] eyes looked at them!
It was only a [kitten|puppy|baby owl]. It was cold and [hungry|wanted to come in].
"You are not a monster at all," laughed {hero}. {he} gave it some milk and {a_colour} blanket.
In the morning, {grandma} said that it could stay. They named it {toy_cap}, because it [loved to play with|slept next to] the {toy}.

A new [family|neighbour] moved to the {place}. {friend}, {a_kind2}, did not know anybody there.
{friend} sat alone [every day|on a bench] and held {a_colour} {toy}. The others said, "[{friend} is strange.|{friend} never talks.]"
But {hero} thought, "Maybe {friend} is only shy." So {he} went over and said, "Hello! That is a nice {toy}."
{friend} looked up and smiled a little. "Do you want to try it?"
They played [all afternoon|until the sun went down]. {friend} knew [many funny games|the best stories|how to {skill}].
The next day, the others came too. ["May we play with you?" they asked.|Soon everybody wanted to play with {friend}.]
"Of course," said {friend}. And nobody was alone [any more|at the {place} ever again].

When {hero} woke up, everything was white. Snow! {he} put on {his} {colour} hat and ran outside.
{friend} was already there. "Let us make a snowman," said {friend}. They rolled one big ball, one middle ball and one small ball.
They gave it a carrot for a nose and {a_colour2} {toy}. ["He looks like {grandma}," said {hero}, and they laughed.|]
But the next day the sun was warm, and the snowman got smaller and smaller. {hero} was sad.
"Do not worry," said {friend}. "He is only going [on a trip|to the river]. He will come back next winter."
So they waved and said goodbye. They kept the {toy} {hiding}.
And when the first snow fell again, they [took out the {toy} and built him once more|knew exactly what to do].

{hero} had {a_colour} {toy}, but {he} wished for {a_toy2}. So {he} went to the {place} to trade.
There {he} met {friend}, who needed {a_toy} very much. "[I have only {a_food}|All I have is {a_food}]," said {friend}.
{hero} [was not sure|thought about it], but {friend} looked so [worried|hopeful] that {he} said yes.
Then {he} met an old {stranger} who was hungry. {hero} gave away the {food} and asked for nothing.
"You are {trait}," said the old {stranger}. "Look {hiding}. There is something that I do not need any more."
{hero} looked, and there it was: a beautiful {toy2}!
{he} ran home and told {grandma} everything. ["Kindness goes around," {gshe} said.|"That was a good trade," {gshe} said.]'''.split("\n\n")]

ENDINGS = ("", "", "", "The end.", "And they lived happily ever after.", "That night, {hero} slept very well.", "It had been a good day.")


def with_article(noun: str) -> str:
    """The noun phrase with `a` or `an` before it."""
    return ("an " if noun[0] in "aeiou" or noun == "honest" else "a ") + noun


def pick_hero(rng: random.Random) -> tuple[str, str, bool]:
    """A name, what it names ("girl", "fox", ...) and whether it is a she."""
    is_girl = rng.random() < 0.5
    name = rng.choice(GIRLS if is_girl else BOYS)
    kind = ("girl" if is_girl else "boy") if rng.random() < 0.6 else rng.choice(ANIMALS)
    return name, kind, is_girl


def _cast(rng: random.Random, hero: tuple[str, str, bool], toy: str | None) -> dict[str, str]:
    name, kind, is_girl = hero
    friend, kind2, friend_is_girl = pick_hero(rng)
    while friend == name:
        friend, kind2, friend_is_girl = pick_hero(rng)
    toy1, toy2 = rng.sample(TOYS, 2)
    if toy is not None:
        toy1, toy2 = toy, toy2 if toy2 != toy else toy1
    place, place2 = rng.sample(PLACES, 2)
    food, food2 = rng.sample(FOODS, 2)
    colour, colour2 = rng.sample(COLOURS, 2)
    nouns = {"kind2": kind2, "trait": rng.choice(TRAITS), "toy": toy1, "toy2": toy2, "colour": colour, "colour2": colour2, "food": food, "food2": food2}
    hiding, hiding2, hiding3 = rng.sample(HIDING, 3)
    elder, elder_is_woman = rng.choice((("Grandma", True), ("Grandpa", False), ("{}'s mother", True), ("{}'s father", False)))
    (he, him, his), (_, him2, his2), (gshe, _, her) = (
        ("she", "her", "her") if is_she else ("he", "him", "his") for is_she in (is_girl, friend_is_girl, elder_is_woman))
    return {
        **nouns, **{f"a_{slot}": with_article(noun) for slot, noun in nouns.items()},
        "hero": name, "kind": kind, "friend": friend, "he": he, "him": him, "his": his, "him2": him2, "his2": his2, "toy_cap": toy1.capitalize(),
        "place": place, "place2": place2, "in_place": f"near the {place}", "hiding": hiding, "hiding2": hiding2, "hiding3": hiding3,
        "skill": rng.choice(SKILLS), "seed": rng.choice(SEEDS),
        "hiding_far": rng.choice(("the attic", "the cellar", "behind the door", "under the stairs", "the kitchen")),
        "dish": rng.choice(DISHES), "stranger": rng.choice(("man", "woman")), "grandma": elder.format(name),
        "grandma_s": elder.format(name) + "'s", "her": her, "gshe": gshe, "gshe_cap": gshe.capitalize(),
    }


def expand(rng: random.Random, template: str, slots: dict[str, str]) -> str:
    """The template with alternatives chosen and slots filled; sentences start with a capital letter."""
    count = 1
    while count:
        template, count = _ALTERNATIVES.subn(lambda match: rng.choice(match.group(1).split("|")), template)
    text = template.format_map(slots).strip()
    return _SENTENCE_START.sub(lambda match: match.group(1) + match.group(2).upper(), text)


def story(rng: random.Random, hero: tuple[str, str, bool] | None = None, toy: str | None = None) -> str:
    """One story of 100 to 250 words; `hero` (see pick_hero) and `toy` are drawn where not given."""
    slots = _cast(rng, hero or pick_hero(rng), toy)
    plot = rng.choice(PLOTS)
    beats = [rng.choice(OPENINGS)]
    if "{a_kind2}" not in plot[0]:  # it introduces the friend itself
        beats.append(FRIEND_BEAT)
    beats += [*plot, rng.choice(ENDINGS)]
    sentences = [expand(rng, beat, slots) for beat in beats]
    return " ".join(sentence for sentence in sentences if sentence)
