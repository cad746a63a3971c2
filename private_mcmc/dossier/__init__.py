"""What is kept of a run: its record, the page that a person signs, the folder, and the check of it all."""

from private_mcmc.dossier.folder import Query, Study, load_record, new_dossier
from private_mcmc.dossier.verify import DossierCheck, verify_dossier

__all__ = ["DossierCheck", "Query", "Study", "load_record", "new_dossier", "verify_dossier"]
