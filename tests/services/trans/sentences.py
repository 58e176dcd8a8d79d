"""Sentences to translate, by language: of English fifty, for comparing with the `apertium` command."""

from __future__ import annotations

from typing import Final

ENGLISH: Final = """\
The house is big.
Please boil the water before you drink it.
My neighbour has two old bicycles in the garage.
I don't know where the station is.
She said that the meeting begins at seven o'clock.
We are looking for volunteers for Saturday morning.
The children play in the garden behind the school.
It has rained for three days, and the river is high.
Do you need help with the shopping?
Bring warm clothes, a torch and enough food.
The pharmacy is open until eight in the evening.
He broke his leg last winter.
There is no electricity in the north of the town.
You can borrow my ladder if you bring it back tomorrow.
The doctor will visit the old people on Tuesday.
Who wants to learn to bake bread?
Yesterday we planted ten trees near the church.
The bus to the hospital leaves every twenty minutes.
I would like to give away a red chair and a small table.
The library lends books, films and music.
Turn off the gas and open the windows!
The telephone number of the fire brigade is 112.
Nobody was hurt when the roof fell down.
The price of the vegetables is 3.50 euros.
They have lived in this street since 1987.
What is the name of the new teacher?
The cat of my aunt has disappeared.
If the alarm sounds, leave the building at once.
The mayor (a friend of mine) speaks French and German.
The soup is too hot; wait a little.
All windows must be closed during the storm.
Can somebody repair a radio?
The first meeting was very interesting.
We need more blankets, beds and drinking water.
The road is closed because of the snow.
My brother works in a factory, and my sister studies medicine.
The dog barks when a stranger comes.
The food is in the kitchen.
Do not touch the cables that lie on the ground.
I have forgotten my keys again.
The market takes place in front of the town hall.
The apples of our garden are sweet this year.
She reads the newspaper every morning.
The old bridge was built by the Romans.
You should take this medicine twice a day.
The light of the lamp is too weak to read.
Our neighbours are friendly and helpful.
A good map is better than a bad guide.
It was dark, cold and quiet.
Thank you for your help, Maria."""
SENTENCES: Final[dict[str, str]] = {
    "en": ENGLISH,
    "es": """\
La casa es grande.
Por favor, hierva el agua antes de beberla.
No sé dónde está la estación.
Los niños juegan en el jardín.
¿Quién quiere aprender a hacer pan?
El agua del río está muy fría (y sucia).
Mi hermana trabaja en el hospital desde 1998.""",
    "mk": """\
Куќата е голема.
Не знам каде е станицата.
Децата играат во градината.
Водата е студена.
Мојот брат работи во болницата.""",
    "bg": """\
Къщата е голяма.
Не знам къде е гарата.
Децата играят в градината.
Водата е студена.
Моят брат работи в болницата.""",
    "ur": """\
یہ گھر بڑا ہے۔
پانی ٹھنڈا ہے۔
میں نہیں جانتا۔""",
    "hi": """\
यह घर बड़ा है।
पानी ठंडा है।
मैं नहीं जानता।""",
}
ANY: Final = "Maria 12, Linux 3."
"""For a language that none of us speaks."""


def lines(language: str) -> list[str]:
    """The sentences of that language."""
    return SENTENCES.get(language, ANY).splitlines()
