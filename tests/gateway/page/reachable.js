// The controls that a finger cannot reach: outside the window, or under something else. Runs in the page.
() => {
  const faults = [];
  const shown = (one) => one.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const scope = document.querySelector("dialog[open]") ?? document;
  for (const control of scope.querySelectorAll("a[href], button, input, select, textarea, summary")) {
    // The link over the content is the keyboard's, and shows itself where it has the focus.
    if (!shown(control) || control.matches(".skip")) continue;
    control.scrollIntoView({ block: "nearest", inline: "nearest" });
    const { left, top, right, bottom, width, height } = control.getBoundingClientRect();
    const hit = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    const inside = Math.min(left, top, innerWidth - right, innerHeight - bottom) > -1;
    const large = width >= 16 && height >= 16;
    if (!inside || !large || !(hit && (control.contains(hit) || hit.control === control))) {
      const name = control.id || control.getAttribute("aria-label") || control.textContent;
      faults.push(`${control.localName} ${name.slice(0, 40)} at ${[left, top, right, bottom].map(Math.round)} hits ${hit?.outerHTML.slice(0, 60)}`);
    }
  }
  return faults;
}
