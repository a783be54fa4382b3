// The page at `/`.

import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { App } from "./views/app";

render(<App />, document.body);
