"""The posterior itself: certificates from proved constants, exact divergences of conjugate families."""
