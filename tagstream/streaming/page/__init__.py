"""How a page looks, whoever makes it: templates, style, charts, values for people."""
