// Before the first drawing: the theme that was chosen here, so that nothing flashes.
{
  const kept = localStorage.getItem("gpu-tenant.theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
}
