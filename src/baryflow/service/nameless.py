"""What scikit-learn says of rows without names, where the order of the columns is known."""

#: Rows are kept in the order in which the model knows its columns: it need not say this.
NAMELESS = "X does not have valid feature names"
