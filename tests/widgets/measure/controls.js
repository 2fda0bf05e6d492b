() => {
  // How many things a mouse could use. Of a group of radio buttons it is one: arrow keys go to the
  // others.
  const all = 'input,select,textarea,button,a[href],summary,[onclick],[tabindex]';
  const usable = element => {
    if (!element.checkVisibility() || element.disabled) return false;
    const radio = element.getAttribute('role') === 'radio';
    return !radio || element.getAttribute('aria-checked') !== 'false';
  };
  return [...document.querySelectorAll(all)].filter(usable).length;
}
