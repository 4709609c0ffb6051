"""Text written for this project: the tokenizers are trained on it, and the long cases are cut from it."""

ENGLISH = """\
The climate is changing faster than the models said it would, and the coast feels it first.
A new phone came out today, and the old one is already slower than it was last week.
The home team scored twice in the last minute and won the match in front of a silent crowd.
I put a little money aside every month; is an index fund better than paying the loan early?
My doctor says that the new medicine is safe, but I still feel tired in the morning.
Our teachers want smaller classes, better books and an hour a week without any test.
This game is far too long, the last boss is unfair, and I have played it three times anyway.
The vote in parliament was close, and nobody knows what the minister will do next.
Researchers measured the light of a distant star and found a planet with water in its air.
The film is slow and beautiful, and its last scene is about nothing but two people eating soup.
She plays the second violin, and the whole piece would fall apart without her.
What is the best book about the sea that is not about a whale?
Cook the onions slowly, add the rice, and do not stir it until the water is gone.
We took the night train to the north and walked along the lake for four days.
He forgot my birthday again, and I do not know how to talk with him about it.
In the year of the great fire the town had nine hundred houses and one pump.
This text is about science. This example is technology. The topic politics is discussed here.
climate change, technology, sports, finance, health, education, gaming, politics
science, movies, music, books, food, travel, relationships, history
Does anybody else think that the update made everything worse? Edit: thank you for the answers!
Question about taxes: I moved from one country to another in the middle of the year.
"""

OTHER_SCRIPTS = """\
Die Straße über die Brücke ist gesperrt, und größere Züge fahren erst am Übermorgen wieder.
Schöne Grüße aus Österreich: die Bücher sind teurer, aber die Küche ist besser geworden.
今日は天気がいいので、公園で本を読みました。
新しい電話は高いですが、とても速いです。
आज मौसम अच्छा है और मैं किताब पढ़ रहा हूँ।
नई फ़िल्म बहुत लंबी है, लेकिन संगीत अच्छा है।
الطقس جميل اليوم وأنا أقرأ كتابا في الحديقة.
الفيلم الجديد طويل جدا ولكن الموسيقى جميلة.
"""

LINES = (ENGLISH + OTHER_SCRIPTS).splitlines()
LONG = " ".join(ENGLISH.split())
