"""Case counts: the panel, its vintages and calendar, its regions, and checks of quality."""
