"""Later user turns: remarks on an answer; templates as in ``openers``."""

from __future__ import annotations

from typing import Final

from outrider.train.prompts.template_lines import template_lines

FOLLOW_UPS: Final = template_lines("""
Can you~
Can you explain~
Now~
Make it shorter~
What about~
Why~
How~
Thanks~
Give me an example~
Rewrite it~
Could you add~
Summarize~
Which~
What if~
Please~
List~
Explain~
Write~
But~
I meant~
And {word}~
Make it shorter.
Make it {tone}.
Now in a {tone} tone, please.
Say that in {n} sentences.
Give me an example.
Give me {n} more.
Why is that?
Are you sure?
Thank you! One more question: what about {topic}?
Explain the last point again.
Can you put that into a table?
Turn that into a {form}.
And how does that relate to {topic}?
Now do the same for {audience}.
What would a {job} say about that?
Which of these is the cheapest?
What is the first step?
How long does it take?
Please use simpler words.
Write it in {language} instead.
Add comments.
Can you check that again?
What if it is {nn} instead?
Show the steps.
Sum that up.
Great, thanks. Now write an email about it to my {person}.
What did you leave out?
Translate the first sentence into French.
Does that also hold in {town}?
What happens if I have only {n} days?
Replace {food} with {food}.
No, something else.
""")
