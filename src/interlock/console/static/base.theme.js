// Light or dark as chosen before, set before anything is drawn. Not a module, so that nothing flashes.
(() => {
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be closed to us; then it is what the system says.
  }
})();
