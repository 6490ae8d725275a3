"""What tensors hold: read, compared, digested and followed from op to op."""
