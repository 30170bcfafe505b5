"""The stages of a round at which the server is killed: before or after one of its methods."""

STAGES = {
    "before-asking": ("_tasks", "before"),
    "after-asking": ("_tasks", "after"),
    "before-waiting": ("_wait", "before"),
    "after-waiting": ("_wait", "after"),
    "before-paying": ("_pay", "before"),
    "after-paying": ("_pay", "after"),
    "before-saving": ("_save", "before"),
    "after-saving": ("_save", "after"),
}
