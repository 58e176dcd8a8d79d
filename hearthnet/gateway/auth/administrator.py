"""The lists of what the administrator of a home can do with its other persons, and cannot.

The administrator is the owner, at the command line of the home. The lists are printed by
`hearthnet person show` and shown on the page to each other person, in its language.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Ability(NamedTuple):
    """One line of a list, in the languages of the page."""

    en: str
    de: str


CAN: Final = (
    Ability(
        "read the disk of this computer: keys, conversations, runs of the last day, documents, posts",
        "die Platte dieses Rechners lesen: die Schlüssel darauf, Unterhaltungen, Läufe des letzten Tages, "
        "Dokumente, Beiträge",
    ),
    Ability(
        "act as you while your keys lie on this computer; a page that is added so is among your devices",
        "für Sie handeln, solange Ihre Schlüssel auf diesem Rechner liegen; eine Seite, die so dazukommt, "
        "steht bei Ihren Geräten",
    ),
    Ability("read the backups of this computer", "die Sicherungen dieses Rechners lesen"),
    Ability(
        "stop, restart and update the node, and change its programs",
        "den Knoten anhalten, neu starten und erneuern, und seine Programme ändern",
    ),
    Ability(
        "remove you, your devices, your posts, and files by their hash; with you all that is yours goes, and "
        "corpora that you shared are the administrator's",
        "Sie entfernen, Ihre Geräte, Ihre Beiträge, und Dateien nach ihrem Hash; mit Ihnen geht alles, was "
        "Ihnen gehört, und Sammlungen, die Sie geteilt haben, gehören dann der Verwaltung",
    ),
    Ability(
        "see how many private corpora, documents and files you have, and how large they are, not their names",
        "sehen, wie viele eigene Sammlungen, Dokumente und Dateien Sie haben und wie groß sie sind, nicht "
        "wie sie heißen",
    ),
    Ability(
        "set a child's limits: what it may call, at which hours, and how many questions a day",
        "einem Kind Grenzen setzen: was es aufrufen darf, zu welchen Zeiten, und wie viele Fragen am Tag",
    ),
    Ability(
        "see by `hearthnet runs list` that a run of yours is there and its state, and cancel it",
        "mit „hearthnet runs list“ sehen, dass es einen Lauf von Ihnen gibt und wie er steht, und ihn "
        "abbrechen",
    ),
    Ability(
        "see in the audit log which effects you had, when, and what was sent",
        "im Prüfprotokoll sehen, was Sie bewirkt haben, wann, und was gesendet wurde",
    ),
    Ability(
        "see by `hearthnet trace` what you called, when, and how long it took",
        "mit „hearthnet trace“ sehen, was Sie wann aufgerufen haben, und wie lange es dauerte",
    ),
)
CANNOT: Final = (
    Ability(
        "see by a command what you asked, what the answer was, or what waits for your decision",
        "mit einem Befehl sehen, was Sie gefragt haben, was die Antwort war, oder was auf Ihre Entscheidung "
        "wartet",
    ),
    Ability(
        "decide in your name by a command: a yes takes the signature of a device of yours",
        "mit einem Befehl für Sie entscheiden: ein Ja braucht die Unterschrift eines Ihrer Geräte",
    ),
    Ability(
        "read your conversations by a command, or take the key out of your browser",
        "Ihre Unterhaltungen mit einem Befehl lesen, oder den Schlüssel aus Ihrem Browser herausholen",
    ),
    Ability(
        "take back your identity once your recovery words are on paper alone, and in no backup of before",
        "Ihre Identität zurückholen, sobald Ihre Wiederherstellungswörter nur noch auf Papier stehen und in "
        "keiner früheren Sicherung",
    ),
)
