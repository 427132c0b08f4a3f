"""One module per verb that commits. Verbs may use `drive`; `drive` never uses verbs."""
