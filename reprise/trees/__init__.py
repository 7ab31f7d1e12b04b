"""Source trees and Python environments that `reprise setup` installs at the locked versions.

The git client of the project and the state of a checkout belong here as well.
"""
