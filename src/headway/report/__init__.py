"""Tables, figures and pages about runs, plans and simulations."""
