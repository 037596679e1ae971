// Runs before the page is shown, so that it does not flash in the other theme.
try {
  const theme = localStorage.getItem("foretoken.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Forbidden: see storage.js.
}
