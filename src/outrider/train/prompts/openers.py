"""First user turns by category, whole or begun; ``compose`` fills their slots.

One template a line, "|" for a line break. A template that ends in "~" is the beginning of a turn:
the model goes on, text to work on included. Every other one is a whole user message. Slots are
kinds of words, or {passage}, {start} (a passage that has only begun), {note}, {records}, {snippet},
{word} (any word of the model's vocabulary) and numbers; {name.1} means the same word wherever it
occurs in a turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from outrider.train.prompts.template_lines import template_lines
from outrider.train.prompts.text_tasks import EXTRACTION, REWRITING, SUMMARISING

CHAT: Final = template_lines("""
What is~
What are~
How do I~
How can I~
Why do~
Why is~
Can you explain~
Tell me about~
I am planning~
I feel~
Give me some advice on~
Give me tips for~
What should I~
Write a short story about~
Write a poem about~
Suggest~
Describe~
Hi! I~
Compare~
Who was~
Plan a~
Write an email to~
Is it~
List~
What's the difference between~
Do {animal}s~
When did~
Where can I find~
Which {thing}~
I need help with~
My {person}~
My {animal}~
Should I~
Imagine~
Explain {topic}~
I have {n} days~
What happens if~
Recommend~
Pretend~
Tell me everything about {word}~
What does {word}~
How does the {word}~
Why does {topic}~
Write about a {word}~
I would like to {word}~
A question about {word}:~
What is {topic}?
How does {topic} work?
Explain {topic} to {audience}.
Explain {topic} in {n} sentences.
Why is {topic} important?
Give me a short introduction to {topic}.
What should {audience} know about {topic}?
Name {n} facts about {topic}.
What are common mistakes when people think about {topic}?
How has {topic} changed in the last hundred years?
Who discovered or invented {topic}?
Tell me something surprising about {topic}.
What is the connection between {topic} and {topic}?
What is the difference between {topic} and {topic}?
Compare {thing} and {thing} for everyday use.
{activity}: where do I begin?
Give me {n} tips for {activity}.
What do I need for {activity}?
How long does {activity} usually take?
I am interested in {activity}. What should I know first?
Is {activity} a good idea for {audience}?
What are the pros and cons of {activity}?
Make a weekly plan for {activity}.
What can go wrong with {activity}?
How much does {activity} cost, roughly?
Motivate me. I want to give up {activity}.
Hello, {problem}. Any ideas?
Lately {problem} and I do not know why. What can I try?
My {person} says that {problem.1} because of {food}. Is that true?
{problem}, what would you do?
Help, {problem}!
I am a {job} and {problem}.~
Write a {form} about {topic}.
Write a {form} about a {animal} and a {thing}.
Write a {form} for my {person} about {event}.
Write a {tone} message to my {person} about {event}.
Write an invitation to {event} on {day} {month} at the {place}.
Write an email to {first} {last} asking about {event}.
Write a thank-you note to a {job}.
Write a {form} that begins with the word {word}.
Continue this story: {start}~
Continue this story: {passage}
Invent a name for a {animal} that likes {food}.
What can I cook with {food}, {food} and {food}?
Suggest a menu for {n} guests who do not eat {food}.
Is {food} healthy?
How do I store {food} and {food}?
Plan {n} days in {town} for {audience}.
What should I pack for {town} in {month}?
How do I get from {town} to {town} without flying?
Recommend {n} things to see in {town}.
What gift can I buy for a {job} for about {price}?
Which {thing} should I buy for {activity}?
How do I clean a {thing}?
My {thing} stopped working. What should I check?
Where do {animal}s sleep?
Why do {animal}s live in groups?
What do {animal}s eat in winter?
Can a {animal} and a {animal} live together?
How fast can a {animal} move?
What does a {job} do all day?
How do I become a {job}?
What questions should I ask a {job}?
Prepare me for a talk with my {person} about {event}.
What does the word {word} mean?
Use the words {word}, {word} and {word} in a {form}.
Give me {n} words that rhyme with {word}.
Give me ideas for a {form} about {word}.
I have two offers, one as a {job} in {town} and one as a {job} in {town}. How do I decide?
Tell me a joke about a {job} and a {animal}.
Do you have feelings?
Who are you?
What can you help me with?
Good morning! How are you?
I am bored.
Let's play a game about {topic}.
Ask me {n} quiz questions about {topic}.
Describe a {weather} day at the {place}.
Describe {town} in {month}.
Is it better to {word} or to {word}?
Give me arguments for and against {topic}.
My {person} and I disagree about {topic}. How can we talk about it?
List {n} jobs that have to do with {topic}.
Summarise the history of {topic}.
""")

CODE: Final = template_lines("""
Write a Python function that~
Write a Python function to~
Write a Python program that~
Write a function in {language} that takes~
Write a {language} function that~
Write a class in {language}~
Write a SQL query that~
Write a Java method that~
Write a C function~
Write a bash script that~
Implement a~
Implement the~
How do I use {language} to~
Write code to~
Write a regular expression~
Create an HTML page~
Explain what this code does:||```python|~
Fix the bug in this function:||```python|def~
Write unit tests for~
Given a list of integers, write~
Write a recursive function~
Convert this code~
def {word}~
What does the {language} keyword~
I get an error in {language}:~
Write a program in {language} that {task}.
{language} code that {task}, please.
I need a {language} script that {task}. Add comments.
Show me how one {task} in {language}.
Write a method called {word}() that {task}.
Write a {language} class for a {thing}.
Write a class {word} with {n} methods~
Design a small {language} program about {event}.
Implement something that {task}, first simply, then faster.
My program {task}, but it is slow. How can I speed it up?
Which data structure would you use for code that {task}?
Write a test for a function that {task}.
Write pseudocode that {task}.
What does this code do?||{snippet}
Explain this line by line:||{snippet}
There is a mistake in this code. Where?||{snippet}
Rename the variables:||{snippet}
Rewrite this in {language}:||{snippet}
Add error handling to this code.||{snippet}
Add comments to this:||{snippet}
What is the output?||{snippet}
Make this shorter:||```|{snippet}|```
{snippet}||Why does this not work?
{snippet}||Turn this into a function with a docstring.
{snippet}||How can I test this?
Explain {language} loops to {audience}.
What is a pointer?
What is recursion? Give an example in {language}.
How does a list differ from a set in {language}?
How do I read a file line by line in {language}?
How do I install a package for {language}?
What are decorators in Python?
What is a foreign key?
How do closures work in JavaScript?
Create a table for {things} in SQL with {n} columns.
Write a SQL statement that deletes old rows from the table {word}.
Write a query for the tables {word}(id, name) and {word}(id, price)~
Write CSS for a {colour} button.
Make an HTML form that asks for a name and a {thing}.
Write JSON for a {thing} with a price of {price}.
Write a git command that~
Write a regular expression that matches a phone number like {phone}.
Write a shell command that lists the {n} largest files.
Create a Python dictionary of {n} towns and their {word}.
""")

MATH: Final = template_lines("""
Solve~
Solve the equation~
What is the value of~
Calculate~
If a train~
A store sells~
A farmer has~
Find the area of~
Find the~
How many~
{first} has~
{first} buys~
What is the sum of~
A rectangle has~
There are~
Explain how to calculate~
Compute the probability~
Simplify the expression~
A car travels~
What percentage of~
Convert~
{first} earns~
If x =~
{first} and {first} share {nn} {things}~
A box holds {n}~
In a class of {nn} students~
What is {nn} + {nnn}?
What is {nnn} minus {nn}?
What is {nn} times {n}?
What is {nnn} divided by {n}?
What is {n} percent of {nnn}?
{nn} * {nn} = ?
Calculate {n} + {nn} * {n}.
Is {nnn} a prime number?
What is the square of {nn}?
What is the square root of {nnn}?
Find the average of {nn}, {nn}, {nn} and {nn}.
What is the median of {n}, {nn}, {n}, {nn} and {nn}?
Solve for x: {n}x + {nn} = {nnn}
Solve {n}x - {n} = {nn}.
Solve x^2 - {n}x + {n} = 0.
Simplify {n}(x + {n}) - {n}x.
Factor x^2 + {nn}x + {nn}.
What is the next number: {n}, {nn}, {nn}, {nn}, ...?
What is the volume of a cube whose edges are {n} cm long?
A triangle has a base of {n} m and a height of {n} m. What is its area?
How long is the diagonal of a square with sides of {n} cm?
A tank holds {nnn} litres and loses {n} litres an hour. When is it half empty?
{first.1} has {nn} {things.1} and gives {n} of them to {first}. How many are left?
{first.1} buys {n} {things} for {price} each and pays with a {nn} note. What is the change?
A {thing} costs {nnn}. In the sale it is {nn} percent cheaper. What does it cost then?
There are {nn} {things.1} in {n} boxes. How many {things.1} are in each box?
{first.1} reads {nn} pages a day. How long does a book of {nnn} pages take?
{first.1} weighs {n} times as much as {first.2}. Together it is {nn} kg. How much is that each?
A bus leaves {town} at {hour} and drives {nnn} km at {nn} km/h. When does it arrive?
Two cyclists start {nn} km apart and ride towards each other at {nn} and {nn} km/h. When do they \
meet?
A recipe for {n} people needs {nnn} g of {food}. How much is needed for {nn}?
{first} works {n} hours a day for {price} an hour, {n} days a week. What is the weekly pay?
A bag holds {n} red and {n} blue marbles. What is the chance of drawing a red one?
What is the chance of throwing a {n} with two dice?
How many ways are there to seat {n} people in a row?
{first} saves {nn} a month at {n} percent a year. How much is that after {n} years?
Convert {nn} kilometres to miles.
How many seconds are {n} hours and {nn} minutes?
Convert {nnn} grams to kilograms.
Write {nn}/{nnn} as a percentage.
Which is larger, {n}/{nn} or {n}/{nn}?
Round {price} to the nearest whole number.
Explain fractions to {audience}.
What is the Pythagorean theorem?
What is a derivative?
Differentiate {n}x^3 - {nn}x.
Integrate {n}x + {n}.
What is log base 2 of {nnn}?
A garden is {nn} m long and {n} m wide. How much fence does it need?
{nn} percent of the {nnn} visitors came by train. How many did not?
{first.1} ran {n} km on {weekday}, {n} km on {weekday} and twice as much on {weekday}. How far in \
all?
A machine makes {nn} {things} in {n} minutes. How many does it make in an hour?
{n} workers need {nn} days. How long do {n} workers need?
The sum of two numbers is {nn}, their difference is {n}. What are they?
""")

OPENERS: Final[Mapping[str, tuple[str, ...]]] = {
    "chat": CHAT,
    "code": CODE,
    "math": MATH,
    "rewriting": REWRITING,
    "summarising": SUMMARISING,
    "extraction": EXTRACTION,
}
