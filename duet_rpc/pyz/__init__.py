"""How the one file is made (`build`), and how it starts (`launcher`, `unpack`)."""
