// Light or dark: as the system prefers, until the reader chooses. The choice stays in this browser.

const KEY = "muster-theme", NEXT = {system: "light", light: "dark", dark: "system"};

function stored() {
  try {
    return localStorage.getItem(KEY) ?? "system";
  } catch {
    return "system";  // A report opened from a disk may have no storage.
  }
}

function apply(choice, button) {
  document.documentElement.style.colorScheme = choice === "system" ? "light dark" : choice;
  button.textContent = {system: "◐", light: "○", dark: "●"}[choice];
  button.setAttribute("aria-label", `Colours: ${choice}. Change to ${NEXT[choice]}`);
  dispatchEvent(new Event("themechange"));
}

export function startTheme(button) {
  let choice = NEXT[stored()] ? stored() : "system";
  apply(choice, button);
  button.addEventListener("click", () => {
    choice = NEXT[choice];
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // It holds for this visit.
    }
    apply(choice, button);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
}
