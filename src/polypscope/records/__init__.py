"""What flows through the house: frozen records checked at birth, and the error tree (numpy and stdlib only)."""
