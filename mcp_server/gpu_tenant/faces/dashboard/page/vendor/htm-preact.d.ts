import type {ComponentChildren, VNode} from "preact";

export {Component, h, render} from "preact";
export {useCallback, useEffect, useLayoutEffect, useMemo} from "preact/hooks";

/** What stands between tags. */
export type Children = ComponentChildren;

// Attributes are not checked against their element; a handler's event is what the handler says it is.
type Handler = (...said: any[]) => unknown;
export function html(
  strings: TemplateStringsArray,
  ...values: (Handler | object | string | number | bigint | boolean | null | undefined)[]
): VNode;

// What begins with nothing may hold anything; what begins with a value holds such values.
export function useRef(initial?: null): {current: any};
export function useRef<T>(initial: T): {current: T};
export function useState(initial: null): [any, (next: any) => void];
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
