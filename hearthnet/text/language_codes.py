"""Language codes: ISO 639-1 where it has one, otherwise three letters.

See: docs/capabilities.md#transtext10.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

from hearthnet.core.errors import HearthNetError

_TABLE: Final = """
aa Afar;ab Abkhazian;ae Avestan;af Afrikaans;ak Akan;am Amharic;an Aragonese;ar Arabic;as Assamese;
av Avaric;ay Aymara;az Azerbaijani;ba Bashkir;be Belarusian;bg Bulgarian;bi Bislama;bm Bambara;
bn Bengali;bo Tibetan;br Breton;bs Bosnian;ca Catalan;ce Chechen;ch Chamorro;co Corsican;cr Cree;
cs Czech;cu Church Slavonic;cv Chuvash;cy Welsh;da Danish;de German;dv Dhivehi;dz Dzongkha;ee Ewe;
el Greek;en English;eo Esperanto;es Spanish;et Estonian;eu Basque;fa Persian;ff Fulah;fi Finnish;
fj Fijian;fo Faroese;fr French;fy Western Frisian;ga Irish;gd Scottish Gaelic;gl Galician;
gn Guarani;gu Gujarati;gv Manx;ha Hausa;he Hebrew;hi Hindi;ho Hiri Motu;hr Croatian;
ht Haitian Creole;hu Hungarian;hy Armenian;hz Herero;ia Interlingua;id Indonesian;ie Interlingue;
ig Igbo;ii Sichuan Yi;ik Inupiaq;io Ido;is Icelandic;it Italian;iu Inuktitut;ja Japanese;
jv Javanese;ka Georgian;kg Kongo;ki Kikuyu;kj Kuanyama;kk Kazakh;kl Greenlandic;km Khmer;
kn Kannada;ko Korean;kr Kanuri;ks Kashmiri;ku Kurdish;kv Komi;kw Cornish;ky Kyrgyz;la Latin;
lb Luxembourgish;lg Ganda;li Limburgish;ln Lingala;lo Lao;lt Lithuanian;lu Luba-Katanga;lv Latvian;
mg Malagasy;mh Marshallese;mi Maori;mk Macedonian;ml Malayalam;mn Mongolian;mr Marathi;ms Malay;
mt Maltese;my Burmese;na Nauru;nb Norwegian Bokmål;nd North Ndebele;ne Nepali;ng Ndonga;nl Dutch;
nn Norwegian Nynorsk;no Norwegian;nr South Ndebele;nv Navajo;ny Chichewa;oc Occitan;oj Ojibwa;
om Oromo;or Odia;os Ossetian;pa Punjabi;pi Pali;pl Polish;ps Pashto;pt Portuguese;qu Quechua;
rm Romansh;rn Rundi;ro Romanian;ru Russian;rw Kinyarwanda;sa Sanskrit;sc Sardinian;sd Sindhi;
se Northern Sami;sg Sango;sh Serbo-Croatian;si Sinhala;sk Slovak;sl Slovenian;sm Samoan;sn Shona;
so Somali;sq Albanian;sr Serbian;ss Swati;st Southern Sotho;su Sundanese;sv Swedish;sw Swahili;
ta Tamil;te Telugu;tg Tajik;th Thai;ti Tigrinya;tk Turkmen;tl Tagalog;tn Tswana;to Tongan;
tr Turkish;ts Tsonga;tt Tatar;tw Twi;ty Tahitian;ug Uyghur;uk Ukrainian;ur Urdu;uz Uzbek;ve Venda;
vi Vietnamese;vo Volapük;wa Walloon;wo Wolof;xh Xhosa;yi Yiddish;yo Yoruba;za Zhuang;zh Chinese;
zu Zulu;nds Low German;ast Asturian;frp Arpitan;szl Silesian;crh Crimean Tatar;hsb Upper Sorbian;
dsb Lower Sorbian
"""
NAMES: Final[dict[str, str]] = {
    code: name
    for code, _, name in (item.strip().partition(" ") for item in _TABLE.replace("\n", " ").split(";"))
}
"""English name by code."""

_SHORT_TABLE: Final = """
afr=af arg=an ara=ar bel=be bre=br bul=bg cat=ca ces=cs cym=cy dan=da deu=de ell=el eng=en epo=eo est=et
eus=eu fao=fo fin=fi fra=fr gle=ga glg=gl hbs=sh heb=he hin=hi hun=hu ind=id isl=is ita=it kaz=kk kir=ky
lav=lv lit=lt ltz=lb mkd=mk mlt=mt nld=nl nno=nn nob=nb nor=no oci=oc pol=pl por=pt ron=ro rus=ru slk=sk
slv=sl sme=se spa=es srd=sc swe=sv tat=tt tur=tr uig=ug ukr=uk urd=ur uzb=uz zlm=ms
"""
_SHORT: Final = dict(item.split("=") for item in _SHORT_TABLE.split())


def code_of(name: str) -> str:
    """Return the mesh's code for a backend's name of a language, such as `eng`."""
    return _SHORT.get(name, name)


def meant(text: str) -> str:
    """Return the code of the language that a person calls `text`.

    `text` is a code, also of three letters, in capitals or with a region (`EN`, `eng`, `en-GB`), or an
    English name.

    Raises:
        HearthNetError: As `check`, for anything else.
    """
    wanted = text.strip().lower()
    named = [code for code, name in NAMES.items() if name.lower() == wanted]
    code = named[0] if named else code_of(re.split(r"[-_]", wanted, maxsplit=1)[0])
    if code not in NAMES:
        check(wanted)
    return code


def check(code: str) -> None:
    """Check that `code` is the code of a language.

    Raises:
        HearthNetError: `bad_request`, with similar codes, if it is not.
    """
    if code in NAMES:
        return
    if code in _SHORT:
        hint = f"{NAMES[_SHORT[code]]} is {_SHORT[code]}"
    else:
        near = get_close_matches(code, NAMES, n=3, cutoff=0.5) or _named_alike(code)
        hint = "did you mean " + ", ".join(f"{one} ({NAMES[one]})" for one in near) + "?" if near else ""
    reason = f"no language has the code {code[:40]!r}; take an ISO 639-1 code such as en, or nds"
    raise HearthNetError("bad_request", f"{reason}; {hint}" if hint else reason, details={"language": code})


def _named_alike(text: str) -> list[str]:
    """Return the codes of languages whose English names resemble `text`."""
    codes = {name.lower(): code for code, name in NAMES.items()}
    return [codes[name] for name in get_close_matches(text.lower(), codes, n=3, cutoff=0.7)]
