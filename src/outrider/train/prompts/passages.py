"""Sentences of made-up passages by kind of text; slots as in ``compose``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: A passage is a run of these in order, some left out, always from the first.
PASSAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "news": (
        "The {place} in {town.1} will close on {day} {month} for {n} weeks.",
        "Workers are replacing the heating and the {colour} tiles, which date from {year}.",
        "The work costs about {price} million and is paid for by the city and by {company}.",
        "{first.1} {last.1}, who speaks for the council, said the delay was regrettable but "
        "needed.",
        "Visitors can use the building on {last} Street instead, which stays open until {hour}.",
        "Some residents of {town.1} fear that the repairs will take longer than promised.",
        "A vote on further changes is expected in {month}.",
    ),
    "business": (
        "{company.1} reported sales of {nnn} million for the quarter, {n} percent more than last "
        "year.",
        "The firm, based in {town}, employs {nnn} people and makes products for the home.",
        "Its chief executive, {first.1} {last.1}, credited a new {thing} and lower shipping costs.",
        "Profit fell slightly because of higher prices for energy.",
        "{last.1} plans to open {n} shops in {town} and {town} before the end of {year}.",
        "Analysts had expected weaker results, and the shares rose by {n} percent on {weekday}.",
    ),
    "email": (
        "Dear {first},",
        "I am writing about the {thing} that I ordered on {day} {month} under number {code}.",
        "It arrived {n} days late, and the box was damaged on one side.",
        "I called your office on {weekday} and was told that somebody would ring me back, but "
        "nobody did.",
        "Please let me know by {weekday} whether you will send a new one or return the {price} I "
        "paid.",
        "You can reach me at {mail} or on {phone}.",
        "Kind regards, {first} {last}",
    ),
    "meeting": (
        "Present at the meeting on {day} {month} were {first.1}, {first.2} and {first.3}.",
        "{first.1} presented the plan for {activity} and asked for {nn} more hours.",
        "The group agreed to move the launch from {month} to {month} because testing is not "
        "finished.",
        "{first.2} will write to {company} about the contract by {weekday}.",
        "{first.3} reported that {nn} customers had complained about the new {thing}.",
        "It was decided to offer them a discount of {n} percent.",
        "The next meeting is on {weekday} at {hour} in room {nn}.",
    ),
    "nature": (
        "The {animal} is active mostly at night and spends the day hidden near water.",
        "It feeds on insects, roots and fallen fruit, and can go for {n} days without eating.",
        "Females raise between {n} and {n} young in a season, usually in {month} or {month}.",
        "Researchers from {town} followed {nn} animals for {n} years with small radio tags.",
        "They found that the animals travelled twice as far in dry years as in wet ones.",
        "Roads and new houses have cut their range into small pieces.",
        "Since {year} the species has been protected, and numbers have slowly recovered.",
    ),
    "biography": (
        "{first.1} {last.1} was born in {town} in {year}, the {n}th child of a {job}.",
        "After a short time as a {job}, {last.1} studied in {town.2} and became a {job}.",
        "The first big success came at the age of {nn}, with a book about {topic}.",
        "During the following years {last.1} travelled widely and taught in {town} and {town}.",
        "Friends described {first.1} as stubborn, generous and always late.",
        "{last.1} died in {town.2} and left a collection of {nnn} letters to the {place}.",
    ),
    "event": (
        "The {town.1} festival takes place from {day} to {day} {month} in front of the {place}.",
        "There will be {n} concerts, a market with {nn} stalls, and a workshop on {topic}.",
        "Tickets cost {price} for adults and are free for children under {n}.",
        "Doors open at {hour}, and the last bus back leaves at {hour}.",
        "Please bring a {thing}, since {weather} weather is forecast.",
        "Volunteers should write to {first} {last} at {mail} before {day} {month}.",
    ),
    "review": (
        "I bought this {thing.1} in {month} and have used it almost every day since.",
        "The first impression was good: it is light, the {colour} finish looks nice, and it was "
        "ready in {n} minutes.",
        "After {n} weeks, however, the handle came loose and one button stopped working.",
        "Customer service at {company} answered within {n} days and sent a spare part for free.",
        "For {price} I would have expected better instructions.",
        "All in all I still like the {thing.1}, but I would not give it to my {person}.",
    ),
    "science": (
        "A study by the university of {town} looked at how {topic.1} affects people aged {nn} to "
        "{nn}.",
        "{nnn} volunteers kept a diary for {n} weeks and answered questions every {weekday}.",
        "Half of them changed one habit, {activity}, while the others changed nothing.",
        "The first group slept {nn} minutes longer and reported less stress.",
        "The authors, led by {first} {last}, warn that the sample was small.",
        "They want to repeat the experiment with {nnn} people in {year}.",
    ),
    "recipe": (
        "For {n} people you need {nnn} grams of {food.1}, two cups of {food.2} and a little "
        "{food.3}.",
        "Wash the {food.1}, cut it into small pieces and let it rest for {n} minutes.",
        "Fry the {food.2} in a large pan until it smells good, then add the rest.",
        "Cover the pan and cook everything at low heat for {nn} minutes.",
        "Season with salt and pepper, and serve it with {food} if you like.",
        "Leftovers keep for {n} days in the refrigerator.",
    ),
    "history": (
        "The old {place} of {town.1} was built in {year} on the site of a market.",
        "A fire destroyed most of it only {n} years later, and {nn} families lost their homes.",
        "{first} {last}, a rich {job}, paid for the new building, which was finished in {year}.",
        "During the war it served as a store for grain, and afterwards as a school.",
        "Today about {nnn} people visit it every day, most of them in {month}.",
        "Guides tell the story of a {animal} that is said to live in the cellar.",
    ),
    "story": (
        "{first.1} had never liked the {place}, least of all on a {weather} {weekday} evening.",
        "But the {thing.1} was gone, and somebody had to look for it.",
        'Behind the door stood {first.2}, holding a {colour} envelope. "You are late," {first.2} '
        "said.",
        "Inside was a photograph of a {animal} and an address in {town}.",
        "Neither of them spoke for {n} minutes.",
        "Then a bell rang somewhere above them, and {first.1} began to run.",
    ),
    "travel": (
        "The train from {town.1} to {town.2} takes {n} hours and follows the river most of the "
        "way.",
        "Trains leave every {nn} minutes from platform {n}, and a single ticket costs {price}.",
        "In {town.2} the {place} is only a short walk from the station.",
        "Most hotels are near the harbour; rooms are cheaper in {month} than in {month}.",
        "Try the local dish of {food} with {food}, and take a {thing} if you go in winter.",
        "{first} {last}, who has guided visitors for {nn} years, recommends the walk along the "
        "wall.",
    ),
    "notice": (
        "The lift in house {n} will be out of service on {weekday}, {day} {month}, from {hour} to "
        "{hour}.",
        "Technicians from {company} will replace the motor and test the doors.",
        "Residents who need help with heavy bags can call {first} {last} on {phone}.",
        "Please keep bicycles out of the hall while the work goes on.",
        "The rent for {month} will be reduced by {price} for everyone on floors {n} and above.",
    ),
    "work": (
        "{first.1} {last.1} joined {company.1} as a {job} in {month} {year}.",
        "In the first months {first.1} set up the new office in {town} and hired {n} people.",
        "The team finished the project on {topic} {n} weeks early and {price} thousand under "
        "budget.",
        "{first.2} {last.2}, the head of department, praised the clear reports and the calm "
        "manner.",
        "There is room for improvement in delegating work and in answering mail on time.",
        "From {day} {month} on, {first.1} will lead a group of {nn}.",
    ),
    "opinion": (
        "It is often said that {activity.1} takes too much time, but the opposite is true.",
        "Whoever spends {nn} minutes a day on it soon notices a difference.",
        "Critics point out that not everybody has the money or the space.",
        "That may be so in {town}, yet most of what you need is already at home.",
        "A survey of {nnn} readers found that {nn} percent had tried it, and half had given up.",
        "The real obstacle is not money but habit.",
    ),
}

#: Informal messages and single sentences to rewrite.
NOTES: Final[tuple[str, ...]] = (
    "hey {first}, cant make it on {weekday}, something came up, can we do {weekday} instead?",
    "Send me the report by {hour} or we will lose the client.",
    "The {thing} you sold me is rubbish and I want my {price} back.",
    "We was waiting for the bus since {hour} but it never come.",
    "Sorry I forgot {event}. I had a lot going on with {activity}.",
    "Due to the fact that the {place} was closed, we were not in a position to go inside.",
    "You need to stop leaving your {thing} in the hall.",
    "i think the {thing} is broken again, who can look at it today",
    "The {job} gave the {job} a {thing} and thanked them for the help with {topic}.",
    "She dont know nothing about {topic} but she talk about it all day.",
    "It is possible that there might be some delay in the delivery of your {thing}.",
    "The results of the test were looked at by {first} and a decision was made to repeat it.",
    "Our new {thing} is very good and very cheap and you should really buy it now.",
    "Can you give me the numbers for {month}? I asked {n} times already.",
    "In my opinion I personally think that {activity} is basically a good thing for everyone.",
    "Me and {first} has went to {town} last {weekday} to see the {place}.",
    "There is a lot of reasons why peoples likes {topic}.",
    "I am not able to come to {event} because my {person} is ill.",
    "Nobody told us that the {place} would be shut, which is annoying.",
    "Your essay on {topic} is boring and far too long.",
    "The {animal} was chased across the garden by the {animal}.",
    "Unfortunately your order {code} cannot be processed at this time.",
    "{first} wants to know if u can bring {food} and {food} tonight",
    "The company have decided to not continue with the project about {topic}.",
    "Thanks for nothing. I waited {nn} minutes and then went home.",
    "If you would have told me earlier, I would of brought the {thing}.",
    "He ran quick to the {place} becouse he were late.",
    "Pay the {price} by {weekday}, otherwise we will cut off your account.",
    "The meeting was boring, but the {food} was nice.",
    "I want a day off on {day} {month} for {event}.",
)

#: Records with facts to pull out; each is one line.
RECORDS: Final[tuple[str, ...]] = (
    "{first} {last}, {job}, {town}, {phone}, {mail}",
    "{code}: {n} x {thing}, {price} each, ordered on {day} {month} {year} by {first} {last}",
    "{weekday} {hour}: {first} meets {first} at the {place} about {topic}",
    "{day}/{n}/{year} - {company} - {price} - paid by card",
    "{n} cups of {food}, {nnn} g {food}, {n} {food}",
    "Flight {code}, {town} to {town}, {day} {month}, {hour}, gate {n}",
    "{first} ({nn}) from {town} won the race in {nn} minutes",
    "Room {nnn}: {first} {last}, arrives {day} {month}, stays {n} nights, {price} per night",
    "{hour} ERROR server {n}: disk {nn} percent full, ticket {code}",
    "Invoice {code}, due {day} {month} {year}, total {price}, {company}",
    "{first} bought {n} {things} and {first} bought {nn} {things}",
    "{town}: {nn} degrees, {weather}; {town}: {nn} degrees, {weather}",
)

#: Pieces of code to explain or to change.
SNIPPETS: Final[tuple[str, ...]] = (
    "total = 0\nfor i in range({n}):\n    total += i * {n}\nprint(total)",
    "def area(width, height):\n    return width + height",
    "words = [w.lower() for w in text.split() if len(w) > {n}]",
    "def greet(name='{first}'):\n    print(f'Hello, {{name}}!')\n\ngreet()",
    "x = {nn}\nwhile x > 1:\n    x = x // 2\n    print(x)",
    "let prices = [{n}, {nn}, {nnn}];\nlet sum = prices.reduce((a, b) => a + b, "
    "0);\nconsole.log(sum);",
    "for (let i = 0; i <= items.length; i++) {{\n  console.log(items[i].name);\n}}",
    "SELECT town, COUNT(*) FROM people WHERE age > {nn} GROUP BY town;",
    "class Counter:\n    def __init__(self):\n        self.value = {n}\n\n    def add(self):\n"
    "        self.value += 1",
    "def longest(names):\n    found = ''\n    for name in names:\n"
    "        if len(name) > len(found):\n            found = name\n    return found",
    "data = {{'{first}': {nn}, '{first}': {nn}}}\nfor key, value in sorted(data.items()):\n"
    "    print(key, value)",
    "int count(int n) {{\n    if (n == 0) return 0;\n    return 1 + count(n / {n});\n}}",
    "try:\n    number = int(input())\nexcept ValueError:\n    number = {n}",
    "public static boolean isEven(int x) {{\n    return x % 2 == 1;\n}}",
    "with open('{word}.txt') as file:\n    lines = file.readlines()\nprint(len(lines))",
    "def find(items, wanted):\n    for i, item in enumerate(items):\n        if item == wanted:\n"
    "            return i\n    return -1",
)
