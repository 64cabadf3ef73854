// Sets the chosen theme before the page is first drawn, so that the colours do not flash.
{
  const kept = localStorage.getItem("gpu-tenant.theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
}
