// Small helpers. Text is always set as text: data from the crawled web is never parsed as markup.

export const byId = (id) => document.getElementById(id);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element, name) {
  if (element.getAttribute("class") !== name) element.setAttribute("class", name);
}

export function make(tag, { text, name, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
