// Language, appearance, who this browser is, and leaving.

import { inWords, request } from "./api.js";
import { app } from "./app.js";
import { button, el, labelled, select, shown } from "./dom.js";
import { forgetAll, setting } from "./storage.js";
import { LANGUAGES, moment, spoken, text } from "./texts.js";
import { personFacts } from "./person.js";

const THEMES = ["system", "light", "dark"];

/** Dark or light, as chosen or as the system has it. */
export function dress() {
  const theme = setting.get("theme", "system");
  if (theme === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = theme;
}

export class SettingsView {
  /** `speak(language)` draws everything anew; `hush()` ends what is still asked, `left()` is called at the end. */
  constructor(speak, hush, left) {
    Object.assign(this, { speak, hush, left });
  }

  show(main) {
    const language = select(Object.entries(LANGUAGES), spoken(), (value) => this.speak(value));
    const theme = select(THEMES.map((one) => [one, text(`theme.${one}`)]), setting.get("theme", "system"), (value) => {
      setting.set("theme", value);
      dress();
    });
    Object.assign(language, { id: "language" });
    Object.assign(theme, { id: "theme" });
    this.error = el("p", { class: "error", role: "alert" });
    main.append(el("div", { class: "column" }, el("h1", {}, text("settings.title")),
      labelled(text("settings.language"), language), labelled(text("settings.theme"), theme), this.#who(), personFacts(), this.error,
      el("p", { class: "hint" }, text("settings.sign_out.sure")),
      button("settings.sign_out", () => this.#leave(), { class: "danger", id: "sign-out" })));
  }

  #who() {
    const { name, key, node, community, expires_at: until } = app.me;
    const facts = [["name", name ?? ""], ["key", key], ["node", node], ["community", community], ["until", moment(until)]];
    return el("section", { "aria-label": text("settings.who") }, el("h2", {}, text("settings.who")),
      el("dl", { class: "facts" }, facts.map(([about, value]) =>
        el("div", {}, el("dt", {}, text(`settings.${about}`)), el("dd", {}, shown(value))))),
      el("p", { class: "hint" }, text("settings.key.about")));
  }

  async #leave() {
    try {
      await request("DELETE", "/v1/session");
    } catch (error) {
      if (error.code === "network") {
        this.error.textContent = inWords(error);
        return;
      }
    }
    this.hush();
    await forgetAll();
    this.left();
  }
}
