"""For people in a terminal: `call`, `console` and `doctor`. The daemon never loads this."""
