// Light or dark as chosen before, and that there are scripts: set before anything is drawn. Not a module, so that
// nothing flashes.
(() => {
  document.documentElement.dataset.scripts = "yes";
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be closed to us; then it is what the system says.
  }
})();
