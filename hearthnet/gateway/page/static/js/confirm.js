// The question before an effect. What is signed is what stands here: the page computes the digest of what it shows.

import { inWords } from "./api.js";
import { app, homeName, who } from "./app.js";
import { announce, button, el, fill, jsonView, labelled, parts, shown, small } from "./dom.js";
import { editor } from "./editor.js";
import { approve, check, checkEdited, checkShown, Refused } from "./lib/approval.js";
import { exactJson, pieces } from "./lib/visible.js";
import { modal } from "./modal.js";
import { moment, text } from "./texts.js";

/**
 * Asks about `pending` and gives what was decided, or null for "later".
 * `requests.decide(frame)` takes the decision, `requests.preview(arguments)` gives the edited call, where it can be edited;
 * `schema` is that of the tool's arguments.
 */
export function confirm(pending, requests, schema = null) {
  return modal(text("confirm.title"), (sheet) => new Question(sheet, pending, requests, schema).show());
}

/** Pixels; positions of what is scrolled are rounded. */
const AT_THE_END = 2;

class Question {
  constructor(sheet, pending, requests, schema) {
    Object.assign(this, { sheet, pending, requests, schema, original: pending, edited: null });
    this.error = el("p", { class: "error", role: "alert" });
  }

  /** The whole call as it will be sent. */
  show() {
    const { pending, sheet } = this;
    sheet.title.textContent = text(this.edited ? "confirm.changed.title" : "confirm.title");
    let sound = true;
    try {
      check(pending, { ...who(), key: app.key.id });
    } catch (error) {
      sound = false;
      this.fail(error);
    }
    const hidden = pieces(JSON.stringify(pending.body ?? null)).some((piece) => piece.hidden);
    fill(sheet.body,
      el("p", {}, text("confirm.what", { name: pending.name })),
      pending.untrusted && el("p", { class: "warning" }, text("confirm.untrusted")),
      hidden && el("p", { class: "warning" }, text("confirm.hidden")),
      pending.problem && el("p", { class: "warning" }, text("confirm.problem", { problem: pending.problem })),
      this.#whole(small(pending.body) ? jsonView(pending.body ?? {}, this.#changed()) : parts(exactJson(pending.body)), sound),
      this.error,
      this.#choices());
  }

  /** All that will be sent, and where; it can be approved once its end was in view, above the choices, and none is beside it. */
  #whole(view, sound) {
    const box = el("div", { class: "body", role: "group", tabindex: "0", "aria-label": text("call.arguments") }, view);
    this.hint = el("p", { class: "hint" }, text("confirm.end"));
    this.mayApprove = false;
    const facts = this.#facts();
    const { dialog } = this.sheet;
    const watch = new ResizeObserver(() => look());
    const look = () => {
      const choices = dialog.querySelector(".choices");
      if (!box.isConnected || !box.clientHeight || !choices) return;
      const [end, seen] = [facts.getBoundingClientRect().bottom, dialog.getBoundingClientRect()];
      const last = Math.min(seen.bottom, choices.getBoundingClientRect().top);
      if (end < seen.top || end > last + AT_THE_END || wide(box) || wide(dialog)) return;
      dialog.removeEventListener("scroll", look);
      watch.disconnect();
      this.hint.hidden = true;
      this.mayApprove = sound;
      const approve = this.sheet.body.querySelector("[data-choice=approve]");
      if (approve) approve.disabled = !sound;
    };
    dialog.addEventListener("scroll", look);
    watch.observe(box);
    watch.observe(dialog);
    return [box, facts, this.hint];
  }

  #changed() {
    if (!this.edited) return new Set();
    const paths = new Set();
    for (const part of ["params", "input"]) {
      for (const [name, value] of Object.entries(this.pending.body?.[part] ?? {})) {
        const before = this.original.body?.[part]?.[name];
        if (JSON.stringify(before) !== JSON.stringify(value)) paths.add(`/${part}/${name}`);
      }
    }
    return paths;
  }

  #facts() {
    const { pending } = this;
    const provider = pending.approval?.provider ?? pending.provider;
    return el("dl", { class: "facts" },
      fact("confirm.capability", shown(pending.capability)),
      provider && place(provider, pending),
      pending.expires_at && fact("confirm.until", moment(pending.expires_at)),
      fact("confirm.digest", el("code", { class: "digest" }, String(pending.arguments_digest))));
  }

  #choices() {
    const reason = el("input", { type: "text", maxlength: 500, autocomplete: "off" });
    return [
      labelled(text("confirm.reason"), reason),
      el("div", { class: "buttons choices" },
        button("confirm.approve", () => this.#approve(), { class: "primary", "data-choice": "approve", disabled: !this.mayApprove }),
        this.requests.preview && button("confirm.edit", () => this.#edit(), { "data-choice": "edit" }),
        button("confirm.deny", () => this.#deny(reason.value), { class: "danger", "data-choice": "deny" }),
        button("confirm.later", () => this.sheet.close(null), { class: "quiet", "data-choice": "later" })),
    ];
  }

  async #approve() {
    await this.#tell(async () => {
      const approval = await approve(this.pending, app.key, who());
      const decision = this.edited ? { decision: "edit", arguments: this.edited } : { decision: "approve" };
      return { ...decision, shown: this.original.arguments_digest, approval };
    });
  }

  async #deny(reason) {
    await this.#tell(async () => ({ decision: "deny", ...(reason ? { reason } : {}) }));
  }

  /** Sends a decision, each at most once at a time. */
  async #tell(make) {
    const buttons = [...this.sheet.body.querySelectorAll("button")];
    buttons.forEach((one) => { one.disabled = true; });
    try {
      this.sheet.close(await this.requests.decide({ confirmation_id: this.original.confirmation_id, ...(await make()) }));
    } catch (error) {
      this.fail(error);
      const refused = error instanceof Refused || !this.mayApprove;
      buttons.forEach((one) => { one.disabled = refused && one.dataset.choice === "approve"; });
    }
  }

  #edit() {
    const form = editor(this.edited ?? this.pending.arguments ?? {}, this.schema, {
      done: (wanted) => this.#preview(wanted), back: () => this.show(),
    });
    this.error.textContent = "";
    this.sheet.title.textContent = text("confirm.edit.title");
    fill(this.sheet.body, this.error, form);
    this.sheet.title.focus();
  }

  /** What the gateway makes of the changed arguments is shown again, whole, before it is signed. */
  async #preview(wanted) {
    this.error.textContent = "";
    try {
      const pending = await this.requests.preview(wanted);
      const { confirmation_id, run, tool_call_id, capability } = this.original;
      checkShown({ ...pending, arguments_digest: "" }, { confirmation_id, run, tool_call_id, capability, arguments_digest: "" });
      checkEdited(pending, wanted);
      Object.assign(this, { pending, edited: wanted });
      this.show();
      this.sheet.title.focus();
    } catch (error) {
      this.fail(error);
    }
  }

  fail(error) {
    // Time that is over is no lie of the gateway, whether the page notices it or the gateway.
    const late = error.code === "expired" || (error instanceof Refused && error.rule === "expired");
    if (late) this.error.textContent = text("confirm.late");
    else if (error instanceof Refused) this.error.textContent = text("confirm.refused", { rule: error.rule });
    else this.error.textContent = inWords(error);
    announce(this.error.textContent);
  }
}

/** Who carries a call out. The label tells this node from another home, whose name stands apart, whatever it is. */
function place(provider, pending) {
  if (provider === "*") return fact("confirm.provider", text("confirm.provider.any"));
  if (provider === app.me.node) return fact("confirm.provider", el("strong", {}, text("confirm.provider.own")));
  return fact("confirm.provider.other", shown((pending.provider === provider && pending.home) || homeName(provider)));
}

const wide = (box) => box.scrollWidth > box.clientWidth;

const fact = (key, value) => el("div", {}, el("dt", {}, text(key)), el("dd", {}, value));
