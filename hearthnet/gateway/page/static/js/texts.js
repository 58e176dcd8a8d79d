// Every word the page says, in each of its languages. {name} is filled in by `text(key, {name})`.

export const LANGUAGES = { en: "English", de: "Deutsch" };

const WORDS = {
  // the frame
  "app.name": ["HearthNet", "HearthNet"],
  "app.skip": ["Skip to the content", "Zum Inhalt springen"],
  "nav.label": ["Sections", "Bereiche"],
  "nav.ask": ["Ask", "Fragen"],
  "nav.waiting": ["Waiting", "Wartet"],
  "nav.waiting.count": ["Waiting, {count} to decide", "Wartet, {count} zu entscheiden"],
  "nav.mesh": ["Mesh", "Netz"],
  "nav.market": ["Market", "Markt"],
  "nav.settings": ["Settings", "Einstellungen"],

  // signing in
  "sign_in.title": ["Open your HearthNet", "Ihr HearthNet öffnen"],
  "sign_in.how": [
    "Open the link that “hearthnet up” printed, or paste it here. It works once, and on this computer.",
    "Öffnen Sie den Link, den „hearthnet up“ ausgegeben hat, oder fügen Sie ihn hier ein. Er gilt einmal und an diesem Rechner.",
  ],
  "sign_in.again": [
    "To get a new link, start the node again or run “hearthnet link”.",
    "Einen neuen Link gibt es, wenn der Knoten neu startet, oder mit „hearthnet link“.",
  ],
  "sign_in.link": ["Link or code", "Link oder Code"],
  "sign_in.go": ["Open", "Öffnen"],
  "sign_in.working": ["Making a key for this browser …", "Für diesen Browser wird ein Schlüssel erzeugt …"],
  "sign_in.no_key": [
    "This browser cannot make Ed25519 keys. Use a current Chrome, Firefox or Safari, over https or on this computer itself.",
    "Dieser Browser kann keine Ed25519-Schlüssel erzeugen. Nehmen Sie ein aktuelles Chrome, Firefox oder Safari, über https oder am Rechner selbst.",
  ],

  // whose page it is
  "person.title": ["Person", "Person"],
  "person.of": ["This is the page of {name} ({id})", "Das ist die Seite von {name} ({id})"],
  "person.name": ["Name", "Name"],
  "person.id": ["Id", "Kennung"],
  "person.limits": ["Limits", "Grenzen"],
  "person.closed": ["This is open from {from} to {to}.", "Hier ist von {from} bis {to} geöffnet."],
  "limits.calls": ["only what your profile allows", "nur, was Ihr Profil erlaubt"],
  "limits.hours": ["from {from} to {to}", "von {from} bis {to}"],
  "limits.questions": ["{count} questions a day", "{count} Fragen am Tag"],
  "device.title": ["Your devices", "Ihre Geräte"],
  "device_kind.node": ["computer", "Rechner"],
  "device_kind.browser": ["browser", "Browser"],
  "device_kind.phone": ["phone", "Telefon"],
  "device_kind.program": ["program", "Programm"],
  "device.this": ["this one", "dieses hier"],
  "device.not": [
    "This page works, but is no device of yours: {problem} It tries again when it is opened anew.",
    "Diese Seite geht, ist aber kein Gerät von Ihnen: {problem} Sie versucht es wieder, wenn sie neu geöffnet wird.",
  ],
  "device.wrong": ["The gateway offered a device that this is not.", "Das Gateway hat ein anderes Gerät angeboten."],
  "recovery.title": ["Your helpers have begun to replace your keys", "Ihre Helfer haben begonnen, Ihre Schlüssel zu ersetzen"],
  "recovery.about": [
    "This was announced on {begun} and can take effect from {until} on. Devices that it does not name are yours no longer then. Object if you do not want it. It was announced by",
    "Das wurde am {begun} angekündigt und kann ab {until} wirksam werden. Geräte, die darin nicht stehen, sind dann nicht mehr Ihre. Widersprechen Sie, wenn Sie es nicht wollen. Angekündigt hat es",
  ],
  "recovery.stopped": [
    "It is stopped as long as a device that objects is yours. Choose other helpers if these began without you.",
    "Es ist angehalten, solange ein Gerät, das widerspricht, Ihres ist. Wählen Sie andere Helfer, wenn diese ohne Sie begonnen haben.",
  ],
  "recovery.object": ["Object", "Widersprechen"],
  "recovery.sure": ["Stop this recovery?", "Diese Wiederherstellung anhalten?"],
  "recovery.sure.about": [
    "Do not stop it if you have lost your keys and asked your helpers for this yourself. They can begin another one.",
    "Halten Sie sie nicht an, wenn Sie Ihre Schlüssel verloren und Ihre Helfer selbst darum gebeten haben. Sie können eine andere beginnen.",
  ],
  "recovery.back": ["Back", "Zurück"],
  "administrator.title": ["What the administrator of this home can do", "Was die Verwaltung dieses Zuhauses kann"],
  "administrator.can": ["The administrator can:", "Sie kann:"],
  "administrator.cannot": ["The administrator cannot:", "Sie kann nicht:"],

  // asking
  "ask.title": ["Ask", "Fragen"],
  "ask.conversations": ["Conversations", "Unterhaltungen"],
  "ask.new": ["New conversation", "Neue Unterhaltung"],
  "ask.untitled": ["New conversation", "Neue Unterhaltung"],
  "ask.delete": ["Delete this conversation", "Diese Unterhaltung löschen"],
  "ask.empty": ["What would you like to know?", "Was möchten Sie wissen?"],
  "ask.empty.more": [
    "Answers come from the models and documents of your own computers. Nothing with an effect happens before you have agreed to exactly that.",
    "Antworten kommen von Modellen und Dokumenten Ihrer eigenen Rechner. Nichts, was etwas bewirkt, geschieht, bevor Sie genau dem zugestimmt haben.",
  ],
  "ask.question": ["Your question", "Ihre Frage"],
  "ask.placeholder": ["Ask something", "Etwas fragen"],
  "ask.send": ["Ask", "Fragen"],
  "ask.stop": ["Stop", "Anhalten"],
  "ask.model": ["Model", "Modell"],
  "ask.model.any": ["Any model", "Irgendein Modell"],
  "ask.corpus": ["Documents", "Dokumente"],
  "ask.corpus.none": ["No documents", "Keine Dokumente"],
  "ask.tools": ["Tools", "Werkzeuge"],
  "ask.tools.count": ["Tools: {count}", "Werkzeuge: {count}"],
  "ask.tools.effect": ["asks you first", "fragt Sie vorher"],
  "ask.tools.none": ["No tools are offered.", "Es werden keine Werkzeuge angeboten."],
  "ask.you": ["You", "Sie"],
  "ask.answer": ["Answer", "Antwort"],
  "ask.goes_on": ["Go on", "Fortsetzen"],
  "ask.all": ["Show all {count} characters", "Alle {count} Zeichen zeigen"],
  "ask.again": ["Ask again", "Noch einmal fragen"],
  "ask.sources": ["Sources", "Quellen"],
  "ask.log": ["Conversation", "Unterhaltung"],

  // how an answer stands
  "state.waiting": ["Waiting for the model …", "Wartet auf das Modell …"],
  "state.running": ["Answering …", "Antwortet …"],
  "state.suspended": ["Waits for your decision.", "Wartet auf Ihre Entscheidung."],
  "state.broken": ["The connection broke; reconnecting …", "Die Verbindung ist abgebrochen; sie wird neu aufgebaut …"],
  "state.away": ["The gateway does not answer; trying again …", "Das Gateway antwortet nicht; neuer Versuch …"],
  "state.elsewhere": ["This answer goes on in another window.", "Diese Antwort geht in einem anderen Fenster weiter."],
  "state.lost": ["The answer was cut off.", "Die Antwort wurde abgebrochen."],
  "state.reading": ["The model is reading: {current} of {total}", "Das Modell liest: {current} von {total}"],
  "stop.max_tokens": ["The answer is cut off: the model reached its limit.", "Die Antwort ist abgeschnitten: Das Modell hat seine Grenze erreicht."],
  "stop.cancelled": ["Stopped.", "Angehalten."],
  "stop.refusal": ["The model refused to answer.", "Das Modell hat die Antwort verweigert."],

  // what happened, by signed records
  "happened.title": ["What happened, by signed records", "Was geschehen ist, nach signierten Einträgen"],
  "happened.done": ["done", "geschehen"],
  "happened.waiting": ["waiting", "wartet"],
  "happened.refused": ["refused, not done", "abgelehnt, nicht geschehen"],
  "happened.unknown": ["unknown, please check", "unbekannt, bitte nachsehen"],
  "happened.nothing": ["nothing", "nichts"],

  // tool calls
  "call.label": ["Tool {name}", "Werkzeug {name}"],
  "call.arguments": ["Arguments", "Argumente"],
  "call.result": ["Result", "Ergebnis"],
  "call.decide": ["Look and decide", "Ansehen und entscheiden"],
  "call.cut": ["Shortened for the model.", "Für das Modell gekürzt."],
  "call.stage": ["{stage}: {current} of {total}", "{stage}: {current} von {total}"],
  "status.pending": ["proposed", "vorgeschlagen"],
  "status.waiting": ["waits for you", "wartet auf Sie"],
  "status.wanted": ["waits for this device", "wartet auf dieses Gerät"],
  "status.running": ["running", "läuft"],
  "status.completed": ["done", "fertig"],
  "status.cached": ["done (known already)", "fertig (schon bekannt)"],
  "status.failed": ["failed", "fehlgeschlagen"],
  "status.refused": ["not valid", "ungültig"],
  "status.denied": ["refused by you", "von Ihnen abgelehnt"],
  "status.expired": ["expired", "abgelaufen"],
  "status.cancelled": ["stopped", "angehalten"],
  "status.outcome_unknown": ["outcome unknown", "Ausgang unbekannt"],
  "status.approved": ["approved", "genehmigt"],
  "status.edited": ["approved with changes", "mit Änderungen genehmigt"],
  "status.claimed": ["being carried out", "wird ausgeführt"],

  // the confirmation
  "confirm.title": ["Shall this happen?", "Soll das geschehen?"],
  "confirm.changed.title": ["Shall this changed call happen?", "Soll dieser geänderte Aufruf geschehen?"],
  "confirm.what": ["{name} is about to be called. This is everything that will be sent:", "{name} soll aufgerufen werden. Das ist alles, was gesendet wird:"],
  "confirm.capability": ["Capability", "Fähigkeit"],
  "confirm.provider": ["Carried out by", "Ausgeführt von"],
  "confirm.provider.other": ["Sent to another home", "Geht an einen anderen Haushalt"],
  "confirm.provider.any": ["any node of the community", "irgendeinem Knoten der Gemeinschaft"],
  "confirm.provider.own": ["this node", "diesem Knoten"],
  "confirm.digest": ["Digest, computed here", "Prüfsumme, hier berechnet"],
  "confirm.until": ["Can be decided until", "Kann entschieden werden bis"],
  "confirm.untrusted": [
    "Before this call the model read what others wrote. That may have led it here.",
    "Vor diesem Aufruf hat das Modell gelesen, was andere geschrieben haben. Das kann es hierher geführt haben.",
  ],
  "confirm.end": ["Scroll to the end of what will be sent; then you can approve it.", "Blättern Sie bis ans Ende dessen, was gesendet wird; dann können Sie es genehmigen."],
  "confirm.hidden": ["It contains hidden characters; they are shown as codes.", "Es enthält verborgene Zeichen; sie werden als Codes gezeigt."],
  "confirm.approve": ["Approve", "Genehmigen"],
  "confirm.deny": ["Refuse", "Ablehnen"],
  "confirm.edit": ["Change", "Ändern"],
  "confirm.later": ["Decide later", "Später entscheiden"],
  "confirm.reason": ["Reason for refusing (optional, the model reads it)", "Grund der Ablehnung (freiwillig, das Modell liest ihn)"],
  "confirm.edit.title": ["Change the call", "Aufruf ändern"],
  "confirm.edit.form": ["As a form", "Als Formular"],
  "confirm.edit.json": ["As JSON", "Als JSON"],
  "confirm.edit.arguments": ["Arguments (JSON)", "Argumente (JSON)"],
  "confirm.edit.show": ["Show the changed call", "Geänderten Aufruf zeigen"],
  "confirm.edit.back": ["Back", "Zurück"],
  "confirm.refused": [
    "Not signed: what the gateway wants signed is not what is shown here ({rule}). Do not trust this gateway; nothing was sent.",
    "Nicht unterschrieben: Was das Gateway unterschrieben haben will, ist nicht das, was hier steht ({rule}). Trauen Sie diesem Gateway nicht; es wurde nichts gesendet.",
  ],
  "confirm.problem": ["These changes are not valid: {problem}", "Diese Änderungen sind ungültig: {problem}"],
  "confirm.decided": ["This was decided already: {word}.", "Darüber wurde schon entschieden: {word}."],
  "confirm.late": ["It is too late to approve this. Nothing was done.", "Für eine Genehmigung ist es zu spät. Es ist nichts geschehen."],
  "field.required": ["{name} is needed.", "{name} wird gebraucht."],
  "field.number": ["{name} must be a number.", "{name} muss eine Zahl sein."],
  "field.json": ["{name} is no valid JSON.", "{name} ist kein gültiges JSON."],
  "field.optional": ["optional", "freiwillig"],
  "field.list": ["separated by commas", "durch Kommas getrennt"],
  "field.unset": ["(not set)", "(nicht gesetzt)"],

  // runs that wait
  "runs.title": ["Waiting", "Wartet"],
  "runs.about": [
    "Answers that wait for a decision. They survive a reload and a restart of the node, for a day.",
    "Antworten, die auf eine Entscheidung warten. Sie überstehen ein Neuladen und einen Neustart des Knotens, einen Tag lang.",
  ],
  "runs.none": ["Nothing waits for you.", "Nichts wartet auf Sie."],
  "runs.resume": ["Go on with the answer", "Mit der Antwort fortfahren"],
  "runs.cancel": ["Give up this run", "Diesen Lauf aufgeben"],
  "runs.device": ["This waits at your computer {name}.", "Das wartet an Ihrem Rechner {name}."],
  "runs.take": ["Take it over here", "Hier übernehmen"],
  "runs.began": ["begun {when}", "begonnen {when}"],
  "runs.terminal": ["asked at the command line", "an der Kommandozeile gefragt"],
  "runs.unknown": ["A question from elsewhere", "Eine Frage von anderswo"],

  // the mesh
  "mesh.title": ["Mesh", "Netz"],
  "mesh.about": ["The computers of your community, and what each offers now.", "Die Rechner Ihrer Gemeinschaft, und was jeder gerade anbietet."],
  "mesh.picture": ["Picture of the mesh: {nodes} nodes, {capabilities} capabilities", "Bild des Netzes: {nodes} Knoten, {capabilities} Fähigkeiten"],
  "mesh.table": ["Nodes and what they offer", "Knoten und was sie anbieten"],
  "mesh.node": ["Node", "Knoten"],
  "mesh.here": ["here", "hier"],
  "mesh.capability": ["Capability", "Fähigkeit"],
  "mesh.health": ["Health", "Zustand"],
  "mesh.detail": ["Details", "Einzelheiten"],
  "mesh.updated": ["As of {when}", "Stand {when}"],
  "mesh.none": ["Nothing is offered.", "Es wird nichts angeboten."],
  "health.good": ["works", "arbeitet"],
  "health.weak": ["has trouble", "hat Schwierigkeiten"],
  "health.busy": ["busy", "ausgelastet"],
  "health.away": ["away", "nicht da"],

  // the market
  "market.title": ["Market", "Markt"],
  "market.about": ["What neighbours offer, need and tell.", "Was Nachbarn anbieten, brauchen und berichten."],
  "market.search": ["Search the posts", "Aushänge durchsuchen"],
  "market.find": ["Search", "Suchen"],
  "market.all": ["Show all", "Alle zeigen"],
  "market.new": ["Write a post", "Aushang schreiben"],
  "market.category": ["Kind", "Art"],
  "market.category.any": ["All kinds", "Alle Arten"],
  "market.offer": ["Offer", "Angebot"],
  "market.request": ["Request", "Gesuch"],
  "market.info": ["News", "Nachricht"],
  "market.emergency": ["Emergency", "Notfall"],
  "market.post_title": ["Title", "Titel"],
  "market.post_body": ["Text", "Text"],
  "market.tags": ["Tags", "Stichwörter"],
  "market.days": ["Days it stays", "Tage, die er hängt"],
  "market.post": ["Look at it and publish", "Ansehen und veröffentlichen"],
  "market.posted": ["Your post is up.", "Ihr Aushang hängt."],
  "market.none": ["There are no posts.", "Es gibt keine Aushänge."],
  "market.until": ["until {when}", "bis {when}"],
  "market.from": ["from {who}", "von {who}"],
  "market.hidden": ["Hidden posts", "Verborgene Aushänge"],
  "market.hidden.by": ["hidden by", "verborgen von"],
  "market.reason": ["Why? Everybody can read it.", "Warum? Alle können es lesen."],
  "market.hide": ["Hide for everybody", "Für alle verbergen"],
  "market.hide.send": ["Look at it and hide", "Ansehen und verbergen"],
  "market.hide.done": ["The post is hidden at all homes.", "Der Aushang ist in allen Haushalten verborgen."],
  "market.unhide": ["Show to everybody again", "Allen wieder zeigen"],
  "market.unhide.send": ["Look at it and show", "Ansehen und zeigen"],
  "market.unhide.done": ["The post is shown again.", "Der Aushang ist wieder zu sehen."],
  "market.mute": ["Mute this author", "Diesen Verfasser ausblenden"],
  "market.unmute": ["Show the posts again", "Aushänge wieder zeigen"],
  "market.muted": ["Authors you have muted: {count}", "Ausgeblendete Verfasser: {count}"],
  "market.muted.done": ["You do not see posts of this author any more.", "Sie sehen keine Aushänge dieses Verfassers mehr."],
  "market.unmuted.done": ["You see posts of this author again.", "Sie sehen wieder Aushänge dieses Verfassers."],
  "market.count": ["Posts: {count}", "Aushänge: {count}"],
  "loan.title": ["Reservations", "Reservierungen"],
  "loan.ask": ["Ask to borrow it", "Zum Ausleihen anfragen"],
  "loan.ask.send": ["Look at it and ask", "Ansehen und anfragen"],
  "loan.ask.done": ["You have asked to borrow it. Its author decides.", "Sie haben angefragt. Der Verfasser entscheidet."],
  "loan.note": ["When do you need it? Everybody can read it.", "Wann brauchen Sie es? Alle können es lesen."],
  "loan.asked": ["asked", "angefragt"],
  "loan.promised": ["promised", "zugesagt"],
  "loan.lent": ["lent", "verliehen"],
  "loan.returning": ["given back, not confirmed", "zurückgegeben, nicht bestätigt"],
  "loan.refused": ["refused", "abgelehnt"],
  "loan.promise": ["Promise it", "Zusagen"],
  "loan.promise.done": ["It is promised.", "Es ist zugesagt."],
  "loan.refuse": ["Refuse", "Ablehnen"],
  "loan.refuse.done": ["The reservation is refused.", "Die Anfrage ist abgelehnt."],
  "loan.hand_over": ["It is handed over", "Übergeben"],
  "loan.hand_over.done": ["It is lent.", "Es ist verliehen."],
  "loan.take_back": ["It is back", "Es ist zurück"],
  "loan.take_back.done": ["It is returned.", "Es ist zurückgegeben."],
  "loan.withdraw": ["Withdraw", "Zurückziehen"],
  "loan.withdraw.done": ["Your reservation is withdrawn.", "Ihre Anfrage ist zurückgezogen."],
  "loan.give_back": ["I have given it back", "Ich habe es zurückgegeben"],
  "loan.give_back.done": ["Its author is asked to confirm it.", "Der Verfasser soll es bestätigen."],

  // settings
  "settings.title": ["Settings", "Einstellungen"],
  "settings.language": ["Language", "Sprache"],
  "settings.theme": ["Appearance", "Darstellung"],
  "theme.system": ["As the system has it", "Wie das System"],
  "theme.light": ["Light", "Hell"],
  "theme.dark": ["Dark", "Dunkel"],
  "settings.who": ["This browser", "Dieser Browser"],
  "settings.name": ["Name", "Name"],
  "settings.key": ["Key", "Schlüssel"],
  "settings.key.about": [
    "Made in this browser and never leaves it. Approvals are signed with it; the gateway cannot make any.",
    "In diesem Browser erzeugt, er verlässt ihn nie. Mit ihm werden Genehmigungen unterschrieben; das Gateway kann keine erfinden.",
  ],
  "settings.node": ["Node", "Knoten"],
  "settings.community": ["Community", "Gemeinschaft"],
  "settings.until": ["Signed in until", "Angemeldet bis"],
  "settings.sign_out": ["Sign out and forget this browser’s key", "Abmelden und den Schlüssel dieses Browsers vergessen"],
  "settings.sign_out.sure": ["Conversations kept in this browser are deleted as well.", "Auch die hier gespeicherten Unterhaltungen werden gelöscht."],

  // announcements to those who hear the page rather than see it
  "say.signed_in": ["Signed in.", "Angemeldet."],
  "say.asked": ["Asked. The answer is being written.", "Gefragt. Die Antwort wird geschrieben."],
  "say.answered": ["The answer is complete: {words}", "Die Antwort ist vollständig: {words}"],
  "say.call": ["{name}: {status}", "{name}: {status}"],
  "say.waits": ["{name} waits for your decision.", "{name} wartet auf Ihre Entscheidung."],
  "say.found": ["Posts found: {count}", "Gefundene Aushänge: {count}"],

  // errors
  "error.any": ["That did not work: {message}", "Das hat nicht geklappt: {message}"],
  "error.network": ["The gateway cannot be reached. Is the node running?", "Das Gateway ist nicht zu erreichen. Läuft der Knoten?"],
  "error.unauthorized": ["You may not do that here: {message}", "Das dürfen Sie hier nicht: {message}"],
  "error.token_expired": ["Your sign-in has run out. Open a new link.", "Ihre Anmeldung ist abgelaufen. Öffnen Sie einen neuen Link."],
  "error.token_scope_insufficient": ["Your sign-in does not cover that: {message}", "Ihre Anmeldung reicht dafür nicht: {message}"],
  "error.not_found": ["Nobody offers that now: {message}", "Das bietet gerade niemand an: {message}"],
  "error.expired": ["That came too late: {message}", "Das kam zu spät: {message}"],
  "error.timeout": ["No answer came in time. Try again.", "Es kam nicht rechtzeitig eine Antwort. Versuchen Sie es noch einmal."],
  "error.partition": ["A part of the mesh cannot be reached. Try again in a moment.", "Ein Teil des Netzes ist nicht zu erreichen. Versuchen Sie es gleich noch einmal."],
  "error.capacity_exceeded": ["Everything is busy. Try again in a moment.", "Alles ist ausgelastet. Versuchen Sie es gleich noch einmal."],
  "error.rate_limited": ["Too much at once. Wait a moment.", "Zu viel auf einmal. Warten Sie einen Moment."],
  "error.questions": ["{message}", "Für heute sind Ihre Fragen aufgebraucht ({message})."],
  "error.hours": ["{message}", "Jetzt ist geschlossen ({message})."],
  "error.revoked": ["This device was removed. Open a new link.", "Dieses Gerät wurde entfernt. Öffnen Sie einen neuen Link."],
  "error.code_used": [
    "This link was used already, or is too old. Get a new one.",
    "Dieser Link wurde schon benutzt oder ist zu alt. Holen Sie einen neuen.",
  ],
};

/** The whole table: `{key: {en, de}}`. */
export const TEXTS = Object.fromEntries(
  Object.entries(WORDS).map(([key, [en, de]]) => [key, { en, de }]),
);

let language = "en";

/** The language that is spoken now. */
export const spoken = () => language;

/** Speaks `wanted`, or what the browser asks for. */
export function speak(wanted) {
  const asked = [wanted, ...(globalThis.navigator?.languages ?? [])].filter(Boolean).map((one) => one.slice(0, 2));
  language = asked.find((one) => one in LANGUAGES) ?? "en";
  return language;
}

/** The text called `key`. A key that there is not is a defect, and shows itself as such. */
export function text(key, values = {}) {
  const words = Object.hasOwn(TEXTS, key) ? TEXTS[key][language] : `[${key}]`;
  return words.replace(/\{(\w+)\}/g, (all, name) => (name in values ? String(values[name]) : all));
}

/** The text called `key`, or `otherwise` where there is none. */
export const textOr = (key, otherwise) => (Object.hasOwn(TEXTS, key) ? text(key) : otherwise);

/** A moment, in the words of the language: `ms` since the epoch. */
export function moment(ms) {
  return new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" }).format(new Date(ms));
}

/** How long something took. */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return `${new Intl.NumberFormat(language, { maximumFractionDigits: 1 }).format(ms / 1000)} s`;
}
