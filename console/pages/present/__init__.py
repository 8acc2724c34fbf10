"""From what the queries read to the shapes that the templates take: wording, order and bounds, no rules."""
