// The reservations of a post: what its borrowers ask, and what its author decides.

import { homeName, isOwn } from "./app.js";
import { button, el, shown } from "./dom.js";
import { text } from "./texts.js";

const CLOSED = ["returned", "refused", "withdrawn"];
const TAKEN = ["promised", "lent", "returning"];
const LENDER = { asked: ["promise", "refuse"], promised: ["hand_over", "refuse"], lent: ["take_back"], returning: ["take_back"] };
const BORROWER = { asked: ["withdraw"], promised: ["withdraw"], lent: ["give_back"] };

/**
 * The open reservations of `post`, and those of this page's person that were refused, with the steps that the person can
 * take, and a form to reserve what others offer.
 * `decide(verb, fields, done)` asks for an effect of the market, carries it out and says the text `done`; whether that was done.
 * `lineForm(name, label, send, optional)` is a form for a line of words, which `send(words)` takes.
 */
export function lending(post, decide, lineForm) {
  const loans = post.loans ?? [];
  const open = loans.filter(({ state }) => !CLOSED.includes(state));
  const mine = isOwn(post);
  const said = loans.filter((loan) => open.includes(loan) || (loan.state === "refused" && isOwn(loan, "by")));
  const mayAsk = !mine && post.category === "offer" && !post.hidden && !open.some((loan) => isOwn(loan, "by"));
  const ask = (note) => decide("reserve", { event_id: post.event_id, ...(note ? { note } : {}) }, "loan.ask.done");
  return [
    said.length > 0 && el("ul", { class: "plain", "aria-label": text("loan.title") },
      said.map((loan) => reservation(post, loan, open, mine, decide))),
    mayAsk && lineForm("loan.ask", "loan.note", ask, true),
  ];
}

function reservation(post, loan, open, mine, decide) {
  const isTaken = open.some((other) => other !== loan && TAKEN.includes(other.state));
  const steps = mine ? (LENDER[loan.state] ?? []).filter((step) => step !== "promise" || !isTaken)
    : isOwn(loan, "by") ? BORROWER[loan.state] ?? [] : [];
  const verb = mine ? "lend" : "reserve";
  const borrower = [loan.by, loan.guest].filter(Boolean).join("/");
  const about = { event_id: post.event_id, reservation: loan.event_id, ...(mine ? { borrower } : {}) };
  const take = (step) => decide(verb, { ...about, step }, `loan.${step}.done`);
  return el("li", { "data-loan": loan.event_id },
    el("p", { class: "hint" }, el("span", { class: "chip" }, text(`loan.${loan.state}`)), " ", shown(homeName(loan.by)),
      loan.guest && [" · ", shown(loan.guest)], loan.note && [": ", shown(loan.note)]),
    steps.length > 0 && el("div", { class: "buttons" },
      steps.map((step) => button(`loan.${step}`, () => take(step), { class: "quiet" }))));
}
