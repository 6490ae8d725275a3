"""What censuses and traces say of builds, and how rows and bullets lead there."""
