() => {
  // How much moves by itself.
  const moves = element => {
    const style = getComputedStyle(element);
    const times = [style.transitionDuration, style.animationDuration];
    return times.some(time => /[1-9]/.test(time)) || style.scrollBehavior === 'smooth'
      || element.matches('marquee,video,[autoplay]');
  };
  return document.getAnimations().length + [...document.querySelectorAll('*')].filter(moves).length;
}
