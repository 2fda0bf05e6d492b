() => {
  // What has the keyboard: its role and name, and whether one sees it.
  const element = document.activeElement;
  if (element === document.body) return null;
  const style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  return {
    tag: element.tagName,
    role: element.getAttribute('role'),
    name: element.getAttribute('aria-label') || element.textContent.trim(),
    ring: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0,
    seen: box.top < innerHeight && box.bottom > 0 && box.width > 0,
  };
}
