// Find elements by selector and kind. `one` and `byId` fail where a page lacks what its script needs.

/**
 * @template {Element} T
 * @typedef {new () => T} Kind
 */

/**
 * The first element that is found, or null.
 * @template {Element} [T=HTMLElement]
 * @param {string} selector
 * @param {Kind<T>} kind
 * @param {ParentNode} root
 * @returns {T | null}
 */
export function find(selector, kind = /** @type {any} */ (HTMLElement), root = document) {
  const found = root.querySelector(selector);
  return found instanceof kind ? found : null;
}

/**
 * The first element that is found; an error if there is none of the kind.
 * @template {Element} [T=HTMLElement]
 * @param {string} selector
 * @param {Kind<T>} kind
 * @param {ParentNode} root
 * @returns {T}
 */
export function one(selector, kind = /** @type {any} */ (HTMLElement), root = document) {
  const found = find(selector, kind, root);
  if (!found) throw new Error(`This page has no ${kind.name} "${selector}".`);
  return found;
}

/**
 * @template {Element} [T=HTMLElement]
 * @param {string} id
 * @param {Kind<T>} [kind]
 * @returns {T}
 */
export const byId = (id, kind) => one(`#${CSS.escape(id)}`, kind);

/**
 * Every element that is found and is of the kind.
 * @template {Element} [T=HTMLElement]
 * @param {string} selector
 * @param {Kind<T>} kind
 * @param {ParentNode} root
 * @returns {T[]}
 */
export function findAll(selector, kind = /** @type {any} */ (HTMLElement), root = document) {
  return [...root.querySelectorAll(selector)].flatMap((found) => (found instanceof kind ? [found] : []));
}

/**
 * The element that an event is about, or the nearest one around it, that the selector names; or null.
 * @template {Element} [T=HTMLElement]
 * @param {Event} event
 * @param {string} selector
 * @param {Kind<T>} kind
 * @returns {T | null}
 */
export function closest(event, selector, kind = /** @type {any} */ (HTMLElement)) {
  const found = event.target instanceof Element ? event.target.closest(selector) : null;
  return found instanceof kind ? found : null;
}

/**
 * The value of the field, or of the chosen one of several, with this name; empty if there is none.
 * @param {HTMLFormElement} form
 * @param {string} name
 */
export function valueOf(form, name) {
  const field = form.elements.namedItem(name);
  return field && "value" in field ? String(field.value) : "";
}

/**
 * What the server wrote about the page; empty if it did not.
 * @param {string} name
 * @param {ParentNode} root
 */
export function meta(name, root = document) {
  return find(`meta[name="${name}"]`, HTMLMetaElement, root)?.content ?? "";
}
