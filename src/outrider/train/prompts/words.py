"""Words that fill the slots of openers: names, places, things, topics. General ones, by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _split(text: str) -> tuple[str, ...]:
    """The entries of a list written with commas."""
    return tuple(" ".join(entry.split()) for entry in text.split(","))


WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "first": _split("""
        Aisha, Albert, Alejandra, Amir, Anneke, Anton, Beatriz, Bela, Bruno, Callum, Carmen, Chidi,
        Clara, Dmitri, Dolores, Edith, Eduardo, Elif, Emeka, Esther, Fatima, Felix, Fiona, Gabriel,
        Gita, Gregor, Hana, Harold, Hiroshi, Ibrahim, Imani, Ines, Ingrid, Isaac, Ivan, Jasmine,
        Joaquin, Jonas, Joyce, Kamal, Karin, Keiko, Kofi, Lars, Leila, Liam, Linh, Lucia, Magnus,
        Malik, Marisol, Martin, Mehmet, Mina, Nadia, Naomi, Neil, Noor, Olga, Omar, Oscar, Paolo,
        Patrick, Petra, Priya, Rachel, Rahul, Rosa, Ruth, Samira, Sanjay, Sergio, Sofia, Stefan,
        Susan, Tamar, Theo, Tomas, Uma, Valentina, Viktor, Wanda, Wei, Yara, Yusuf, Zoe"""),
    "last": _split("""
        Abbott, Adeyemi, Almeida, Andersson, Baker, Banerjee, Bauer, Becker, Bennett, Berg, Bianchi,
        Carter, Castillo, Chen, Clarke, Costa, Dubois, Duarte, Eriksen, Farouk, Ferrari, Fischer,
        Foster, Gallagher, Garcia, Ghosh, Haddad, Hansen, Hayashi, Hughes, Ivanov, Jansen, Kaplan,
        Keller, Khan, Kowalski, Kumar, Lindqvist, Lopez, Mancini, Mbeki, Meyer, Mitchell, Moreau,
        Murphy, Nakamura, Nguyen, Novak, Okafor, Olsen, Ortiz, Osei, Park, Petrov, Quinn, Ramos,
        Reyes, Rossi, Russo, Santos, Sato, Schmidt, Shah, Silva, Singh, Sokolov, Tanaka, Turner,
        Vargas, Walsh, Weber, Wright, Yamada, Zhang"""),
    "town": _split("""
        Aberdeen, Accra, Adelaide, Alder Bay, Ashford, Auckland, Austin, Bergen, Bogota, Bolton,
        Boston, Brno, Calgary, Cardiff, Chicago, Cork, Dakar, Denver, Dresden, Eastbrook, Fairmont,
        Galway, Geneva, Ghent, Glasgow, Graz, Greenfield, Hamburg, Hanoi, Harwick, Helsinki,
        Jakarta, Kingsbridge, Krakow, Kyoto, Lakeview, Leeds, Lima, Lyon, Madison, Malmo, Maplewood,
        Marseille, Millbrook, Montreal, Mumbai, Nairobi, Naples, Northgate, Oakhurst, Osaka, Oslo,
        Ottawa, Perth, Portland, Porto, Prague, Quito, Riverton, Rotterdam, Salford, Seattle,
        Seville, Sofia, Springdale, Stonehaven, Taipei, Tartu, Toronto, Tunis, Turin, Utrecht,
        Valencia, Vilnius, Wellington, Westport, Zagreb"""),
    "month": _split("""
        January, February, March, April, May, June, July, August, September, October, November,
        December"""),
    "weekday": _split("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
    "place": _split("""
        public library, town hall, swimming pool, bus station, art museum, city park, primary
        school, community centre, train station, farmers' market, harbour, hospital, science museum,
        university, post office, old mill, concert hall, football stadium, botanical garden, cinema,
        youth hostel, fire station, airport, shopping centre, nature reserve, visitor centre"""),
    "job": _split("""
        accountant, architect, baker, biologist, bus driver, carpenter, chef, civil engineer,
        cleaner, dentist, designer, director, economist, electrician, farmer, firefighter, gardener,
        geologist, historian, journalist, lawyer, librarian, manager, mechanic, midwife, musician,
        nurse, painter, pharmacist, photographer, pilot, plumber, programmer, project manager,
        receptionist, researcher, sales assistant, secretary, teacher, translator, vet, waiter"""),
    "thing": _split("""
        backpack, bookshelf, camera, candle, ceiling fan, coffee machine, desk lamp, digital watch,
        dishwasher, electric drill, electric kettle, fountain pen, garden hose, guitar, hair dryer,
        headphones, keyboard, ladder, laptop, lawn mower, mattress, microwave, mirror, monitor,
        mug, notebook, office chair, phone case, printer, projector, puzzle, rain jacket, rug,
        scarf, sewing machine, sleeping bag, smart speaker, sofa, suitcase, table, tablet, teapot,
        telescope, tent, toaster, umbrella, vacuum cleaner, wallet, water bottle, wool blanket"""),
    "things": _split("""
        apples, balloons, beads, biscuits, books, bottles of juice, boxes, bricks, buttons, chairs,
        coins, cookies, crayons, cupcakes, eggs, envelopes, flowers, folders, jars of jam, lemons,
        marbles, muffins, notebooks, oranges, pages, pears, pencils, pieces of wood, plates,
        postcards, ribbons, sandwiches, seats, shells, stamps, stickers, tickets, tiles, cars"""),
    "food": _split("""
        rice, lentils, eggs, potatoes, carrots, mushrooms, spinach, salmon, chicken, tofu, pasta,
        bread, cheese, yoghurt, oats, apples, bananas, lemons, ginger, garlic, onions, peppers,
        beans, pumpkin, noodles, cabbage, honey, almonds, coconut milk, olives, beef, shrimp"""),
    "animal": _split("""
        badger, bat, bear, bee, beetle, butterfly, camel, crow, deer, dolphin, duck, eagle,
        elephant, fox, frog, goat, hedgehog, horse, jellyfish, kangaroo, lizard, octopus, otter,
        owl, parrot, penguin, rabbit, salmon, seal, sheep, snail, spider, squirrel, swan, tortoise,
        turtle, whale, wolf"""),
    "topic": _split("""
        photosynthesis, black holes, plate tectonics, the water cycle, gravity, electric motors,
        solar panels, the immune system, vaccines, antibiotics, memory, dreams, sleep, the human
        heart, digestion, genetics, evolution, dinosaurs, volcanoes, earthquakes, hurricanes,
        glaciers, tides, coral reefs, rainforests, deserts, the Silk Road, the Roman Empire, the
        Industrial Revolution, the printing press, the Cold War, ancient Egypt, the Renaissance,
        the French Revolution, the Great Depression, the moon landing, the Vikings, the United
        Nations, democracy, human rights, taxes, interest rates, the stock market, insurance,
        budgeting, mortgages, credit cards, supply and demand, recycling, climate change, wind
        power, nuclear energy, electric cars, batteries, bridges, aeroplanes, submarines,
        refrigerators, microwave ovens, GPS, the internet, encryption, passwords, artificial
        intelligence, neural networks, databases, cloud computing, operating systems, open source
        software, version control, social media, online privacy, mindfulness, meditation, yoga,
        stress, anxiety, motivation, friendship, leadership, teamwork, public speaking, negotiation,
        time management, remote work, journalism, advertising, jazz, classical music, opera, poetry,
        the novel, Shakespeare, impressionism, photography, architecture, film editing, theatre,
        chess, football, tennis, swimming, the Olympic Games, coffee, tea, chocolate, bread, cheese,
        fermentation, nutrition, vitamins, protein, dehydration, allergies, the common cold,
        diabetes, high blood pressure, first aid, pregnancy, childhood, ageing, language learning,
        grammar, logic, probability, statistics, algebra, geometry, prime numbers, calculus, atoms,
        chemical reactions, acids and bases, the periodic table, magnets, sound waves, light,
        lightning, rainbows, comets, Mars, Saturn, telescopes, bees, wolves, migration of birds,
        whales, trees, mushrooms, composting, soil, gardening, knitting, pottery, woodworking"""),
    "activity": _split("""
        learning a new language, baking bread, saving money, working from home, cooking for one,
        growing herbs, cycling to work, swimming, hiking in the mountains, learning to draw,
        playing the piano, writing a novel, keeping a diary, reading more books, training a puppy,
        moving to a new city, buying a first car, renting a flat, travelling alone, camping with
        children, planning a wedding, studying for an exam, giving a speech, making new friends,
        changing careers, starting a small business, building a website, learning to code, taking
        better photos, cutting down on sugar, drinking more water, meditating, waking up early,
        cleaning the kitchen, organising a wardrobe, repairing a puncture, painting a room,
        choosing a laptop, writing a CV, asking for a pay rise, dealing with a noisy neighbour,
        caring for an older parent, talking to teenagers, hosting a dinner party, eating less meat,
        using less plastic, packing for a long trip, learning to swim as an adult, lifting weights,
        stretching, running a meeting, taking notes, remembering names, sleeping on a plane"""),
    "problem": _split("""
        my back hurts after work, I keep forgetting appointments, my phone battery runs out quickly,
        I cannot concentrate, my internet is slow, my cat will not eat, my bread does not rise,
        I argue with my sister a lot, I spend too much on takeaway food, I feel tired all day, my
        neighbours are loud, I have too many meetings, my essay is too long, I am afraid of flying,
        my basil keeps dying, my shoes smell, I moved and know nobody here, my manager never gives
        feedback, I get headaches from the screen, my son does not like vegetables, the tap drips,
        my skin is dry in winter, I procrastinate, I cannot decide what to study"""),
    "person": _split("""
        friend, sister, brother, neighbour, colleague, boss, aunt, uncle, cousin, teacher, son,
        daughter, landlord, team, flatmate, coach, parents, customer, partner, mentor"""),
    "event": _split("""
        a wedding, a new job, a graduation, a retirement, a new baby, moving house, a housewarming,
        passing an exam, a farewell party, a missed meeting, a late delivery, a lost parcel, a
        school trip, a family dinner, a broken vase, a cancelled trip, a promotion, an anniversary,
        a charity run, a book club evening, a rent increase, a repair, a loan, a borrowed book"""),
    "audience": _split("""
        a beginner, a child, a teenager, a five-year-old, a student, my grandfather, someone who has
        never heard of it, a busy parent, a new employee, a tourist, a class of ten-year-olds, a
        curious friend, an engineer, a patient"""),
    "tone": _split("""
        formal, friendly, polite, more confident, casual, professional, cheerful, neutral, gentle,
        more persuasive, enthusiastic, apologetic, direct, warm, serious, humorous, diplomatic,
        urgent, academic, simple"""),
    "form": _split("""
        short story, poem, haiku, limerick, letter, blog post, speech, dialogue, news report,
        product description, song, fairy tale, diary entry, review, paragraph, slogan, riddle,
        description, short essay, scene, advertisement, toast, joke, list of questions"""),
    "language": _split("""
        Python, Python, Python, Python, JavaScript, JavaScript, Java, C, C++, Go, Rust, TypeScript,
        Ruby, SQL, Bash"""),
    "task": _split("""
        reverses a list in place, counts the words in a text, finds the deepest nested list,
        checks whether a number is prime, computes the factorial of a number, merges two sorted
        lists, orders records by two columns, finds the second smallest value, counts how
        often each letter occurs, rotates a matrix, flattens a nested list, finds the longest word,
        computes a moving average, computes the greatest common divisor, generates a random
        password, validates an email address, parses a date, converts miles to kilometres, converts
        an integer to binary, converts a Roman numeral to a number, finds all pairs with a given
        sum, groups words by their first letter, splits a list into chunks, removes punctuation from
        a text, capitalises every word, finds common elements of two lists, transposes a matrix,
        searches a sorted array, implements bubble sort, implements quicksort, implements binary
        search, prints a multiplication table, prints a triangle of stars, draws a chessboard,
        simulates rolling two dice, keeps a shopping list, manages a bank account, counts lines in a
        file, copies a folder, downloads a web page, reads JSON from a file, writes a log entry,
        measures how long a function takes, retries a failing call, caches results, walks a tree,
        reverses a linked list, implements a queue with two stacks, finds the shortest path in a
        graph, detects a cycle in a linked list, checks balanced brackets, computes compound
        interest, calculates a tip, formats a phone number, encrypts a text with a Caesar cipher,
        compresses repeated characters, compares two versions, draws a bar chart, filters even
        numbers, sums the digits of a number, checks whether two words are anagrams, finds missing
        numbers in a range, returns the last word of a sentence, replaces vowels with stars,
        schedules a reminder, sends an email, resizes an image, counts users by country"""),
    "company": _split("""
        Alder Foods, Blue Harbour, Brightwell, Cedar Systems, Copperline, Delta Freight, Eastgate
        Energy, Fernhill Dairy, Granite Works, Halcyon Travel, Ironbridge Tools, Juniper Labs,
        Kestrel Air, Lantern Books, Meridian Bank, Nimbus Media, Northwind Textiles, Orchard
        Insurance, Pinecrest Hotels, Quarry Road Studios, Redwood Robotics, Silverlake Health,
        Summit Outdoor, Tidewater Shipping, Vista Telecom, Willow Furniture"""),
    "weather": _split("""
        sunny, cloudy, windy, foggy, stormy, cold, mild, humid, rainy, snowy"""),
    "colour": _split("red, blue, green, yellow, white, black, grey, brown, orange, purple"),
}
