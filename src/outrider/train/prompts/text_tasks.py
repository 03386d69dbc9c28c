"""First user turns that bring a text to work on; templates as in ``openers``."""

from __future__ import annotations

from typing import Final

from outrider.train.prompts.template_lines import template_lines

REWRITING: Final = template_lines("""
Rewrite this sentence~
Rewrite the following sentence to be more formal:||~
Rewrite the following paragraph in simpler words:||~
Rewrite the text below~
Rewrite this email to be more polite:||~
Make this text more concise:||~
Make this message friendlier:||Hi~
Paraphrase the following:||~
Rephrase~
Correct the grammar in this sentence:~
Turn this into the past tense:~
Fix all spelling and grammar mistakes here:||~
Change the tone of this~
Edit the following paragraph~
Improve this sentence:~
Rewrite in the passive voice:~
Translate this into plain English:||~
Turn the following notes into a paragraph:||-~
Rewrite this in a {tone} tone:||{start}~
Shorten this:||{start}~
Say this in other words: {start}~
Rewrite it for {audience}:||{start}~
Rewrite this in a {tone} tone: {note}
Make this sound {tone}: {note}
Can you make this more {tone}?||{note}
Rephrase for my {person}: {note}
Correct this: {note}
Fix all mistakes:||{note}
{note}||Rewrite this so that it sounds {tone}.
{note}||Is this correct English? If not, fix it.
Turn this into one sentence: {note} {note}
Rewrite "{note}" as an email to my {person}.
Make it longer: {note}
Say it in {n} different ways: {note}
Write this as a text message: {note}
Turn this message into a {tone} letter:||{note}
Improve the style of this: {note}
Rewrite the following in the third person: {note}
Use active verbs: {note}
Remove every unnecessary word: {note}
Replace the word {word} in this text: {note}
Make this paragraph shorter:||{passage}
Rewrite for {audience}:||{passage}
Rewrite in a {tone} style:||{passage}
Put this into the present tense:||{passage}
{passage}||Say the same in half as many words.
{passage}||Rewrite this as a {form}.
Turn this passage into bullet points:||{passage}
Turn this into a {form}:||{passage}
Rewrite this as if {first} were telling it:||{passage}
Paraphrase this text:||{passage}
Turn these lines into full sentences:||{records}
Write the following as a paragraph:||{records}
Reword the first sentence:||{passage}
Use easier words: {passage}
Give this text a {tone} opening:||{passage}
Edit for clarity: {passage}
Rewrite this as a {job} would tell it:||{passage}
Make this less {tone}: {note}
""")

SUMMARISING: Final = template_lines("""
Summarize the following text:||~
Summarize this article:||~
Summarize the following text in one sentence:||~
Write a short summary of~
Summarize the passage below in two sentences.||The~
TL;DR of this text:||~
Summarize the main points of this paragraph:||~
Condense the following paragraph:||~
Give a brief summary of the following:||~
What is the main idea of this passage?||~
Provide a concise summary of this text:||In~
Summarise the following email:||Dear~
Read the text and summarize it in three bullet points:||~
What are the key points of this text?||~
Summarize:||{start}~
Summarise this in {n} sentences.||{start}~
What is this about?||{start}~
Sum up this report for {audience}:||{start}~
Give me the gist: {start}~
Headline and summary, please.||{start}~
Shorten to {nn} words: {start}~
Text: {start}~
Summarise this text.||{passage}
Summarize in one sentence: {passage}
Sum this up in {n} sentences:||{passage}
Give me the short version of this:||{passage}
What is the most important point here?||{passage}
{passage}||Summarize.
{passage}||Summarise the text above for {audience}.
{passage}||TL;DR
{passage}||What is the main message, in at most {nn} words?
Bullet points, please:||{passage}
List the {n} main points of this text:||{passage}
Write a headline for this text:||{passage}
Find a title: {passage}
Explain in your own words what this says:||{passage}
What happened?||{passage}
Summarise for my {person}, who has no time:||{passage}
Key facts only:||{passage}
Who does what in this text? Keep it brief.||{passage}
Reduce this to {nn} words:||{passage}
Write minutes from this:||{passage}
Turn this into a short abstract:||{passage}
Describe the following in two lines:||{passage}
Make a summary of both texts.||1. {passage}||2. {passage}
Summarise these lines in one sentence:||{records}
What do these entries show?||{records}
What does the writer want?||{passage}
What is the conclusion of this text?||{passage}
""")

EXTRACTION: Final = template_lines("""
Extract the names~
Extract all the dates from the following text:||~
List the items~
Extract the names of the people mentioned in this text:||~
Extract the key~
Extract the email addresses and phone numbers from this text:||~
Make a table of the~
List all the places mentioned in the following passage:||~
From the text below, extract~
Find all the numbers in this text:||~
Pull out the action items from these notes:||~
Identify the people and organizations in the following sentence:~
Which companies are mentioned in this paragraph?||~
Extract the ingredients from this recipe:||~
Return the following information as JSON~
Read this paragraph and answer the question.||~
What is the name of the person in this text?||~
Who is mentioned here?||{start}~
Find the dates:||{start}~
Text: {start}~
Answer from the text only.||{start}~
Return all names as a list:||{start}~
Which names occur in this text?||{passage}
List every number in it:||{passage}
List all dates and times:||{passage}
Which places are named?||{passage}
Give me all people with their roles:||{passage}
What does it cost?||{passage}
When does this take place?||{passage}
Who wrote this, and to whom?||{passage}
{passage}||Who is mentioned?
{passage}||How many people are involved?
{passage}||Which of the facts are numbers?
{passage}||List the organisations.
{passage}||What reasons are given?
{passage}||What has to be done, and by whom?
{passage}||Answer in a few words: where does this happen?
{passage}||Question: when?|Answer:
Copy the sentence that mentions a price:||{passage}
Make a table with two columns, name and fact:||{passage}
Output JSON with keys for place, person and date:||{passage}
Output the data as CSV:||{records}
Turn these lines into JSON:||{records}
Make a table:||{records}
Which towns occur in these lines?||{records}
List only the names:||{records}
List only the prices:||{records}
What is the first date here?||{records}
Sort these lines by name:||{records}
How many entries are there?||{records}
{records}||Which entry mentions {first}?
{records}||Give me all numbers.
{records}||Return the second line as JSON.
Find all nouns: {note}
Find the verbs in this sentence: {note}
What is asked for here? {note}
Is this text positive, negative or neutral?||{passage}
Which language is this? {note}
What kind of text is this?||{passage}
Give {n} keywords for this text:||{passage}
Tag each sentence as fact or opinion:||{passage}
Does the text mention {food}?||{passage}
Label this message as urgent or not: {note}
""")
