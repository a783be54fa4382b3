// A component that is drawn again only if one of its properties is another value.

import { Component, h, type ComponentType } from "preact";

export function memo<P extends object>(inner: ComponentType<P>): ComponentType<P> {
  return class Memo extends Component<P> {
    override shouldComponentUpdate(next: Readonly<P>): boolean {
      return (Object.keys(next) as (keyof P)[]).some((name) => next[name] !== (this.props as P)[name]);
    }

    override render(props: P) {
      return h(inner, props);
    }
  };
}
