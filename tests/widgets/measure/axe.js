options => {
  // What axe complains of. It takes what lies behind a transparent page for white, so the page gets
  // the browser's own colour; text over a picture, which axe cannot decide, is a complaint as well.
  const transparent = element => getComputedStyle(element).backgroundColor === 'rgba(0, 0, 0, 0)';
  const root = document.documentElement;
  if (transparent(root) && transparent(document.body)) root.style.backgroundColor = 'Canvas';
  const name = node => node.html.replace(/base64,[^"]*/g, '…').slice(0, 160);
  const onPicture = node => /bgImage|bgGradient/.test(node.any[0]?.data?.messageKey);
  return axe.run(document, options).then(({ violations, incomplete }) => [
    ...violations.flatMap(rule => rule.nodes.map(node => `${rule.id}: ${name(node)}`)),
    ...incomplete.flatMap(rule => rule.nodes).filter(onPicture)
      .map(node => `on a picture: ${name(node)}`),
  ]);
}
